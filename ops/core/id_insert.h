// Newcomers: a slot for each, a row with it, and what that did to the table.
#pragma once

#include "id_slots.h"

namespace merlin {

// What a call counts, before it goes to the meters.
struct Tally {
  int64_t looked_up = 0, hits = 0, inserted = 0, evicted = 0, not_admitted = 0, overflowed = 0;

  void write(int64_t* meters) const;
};

void append(IdChanges* to, const IdChanges& from);

// The lowest free row of a dynamic table, which has one.
int64_t take_row(const IdTable& table);
void free_row(const IdTable& table, int64_t row);

// Doubles the part of a dynamic table's index that is in use. False where all of it is.
bool grow(const IdTable& table, IdSpace* space);

// Grows while `ids` would fill more than three quarters of the slots in use.
void grow_for(const IdTable& table, int64_t ids, IdSpace* space);

// The slot that an id which has none gets, or kNoSlot; its tag, score, pin and row are written. Its
// key isn't: the caller hands `slot` and `evicts` to name_slot, for many ids together, whose cache
// misses are under way by then. The tally says what else the call did so far.
struct Given {
  int64_t slot;
  bool evicts;
};
Given give_slot(const IdTable& table, const Step& step, uint64_t hash, uint32_t score, uint16_t pin,
                IdSpace* space, Tally* tally);

// Writes the key, and what changed. Before it has, nothing may grow.
void name_slot(const IdTable& table, const Given& given, int64_t id, IdChanges* changes);

}  // namespace merlin
