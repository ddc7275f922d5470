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

MERLIN_ALWAYS_INLINE int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
MERLIN_ALWAYS_INLINE int64_t smaller(int64_t a, int64_t b) { return b < a ? b : a; }

MERLIN_ALWAYS_INLINE int lowest_bit_of_64(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __ffsll(static_cast<long long>(bits)) - 1;
#else
  return __builtin_ctzll(bits);
#endif
}

// The lowest free row of a dynamic table, which has one.
MERLIN_ALWAYS_INLINE int64_t take_row(const IdTable& table) {
  int64_t& word = table.meters[kFreeFrom];
  while (~table.taken[word] == 0) ++word;
  const uint64_t bits = static_cast<uint64_t>(table.taken[word]);
  const int bit = lowest_bit_of_64(~bits);
  table.taken[word] = static_cast<int64_t>(bits | uint64_t{1} << bit);
  const int64_t row = 64 * word + bit;
  table.meters[kHighest] = larger(table.meters[kHighest], row + 1);
  return row;
}

MERLIN_ALWAYS_INLINE void free_row(const IdTable& table, int64_t row) {
  const int64_t word = row / 64;
  const uint64_t bit = uint64_t{1} << (row % 64);
  table.taken[word] = static_cast<int64_t>(static_cast<uint64_t>(table.taken[word]) & ~bit);
  table.meters[kFreeFrom] = smaller(table.meters[kFreeFrom], word);
}

// Doubles the part of a dynamic table's index that is in use. False where all of it is. Bucket b
// becomes 2b and 2b + 1, from the last to the first, so that where entries go was emptied before.
MERLIN_ALWAYS_INLINE bool grow(const IdTable& table, IdSpace* space) {
  const int64_t active = static_cast<int64_t>(space->active);
  if (!table.dynamic() || active == table.shape.buckets) return false;
  const IdSpace old = *space;
  table.meters[kActive] = 2 * active;
  *space = IdSpace::of(table);
  for (int64_t b = active - 1; b >= 0; --b)
    for (int64_t shard = 0; shard < table.shape.shards; ++shard) {
      const int64_t start = shard * old.of_shard + b * old.of_bucket;
      uint8_t tags[kBucket];
      int64_t keys[kBucket];
      uint32_t scores[kBucket];
      uint16_t pins[kBucket];
      int32_t rows[kBucket];
      for (int64_t i = 0; i < kBucket; ++i) {
        tags[i] = table.tags[start + i];
        keys[i] = table.keys[start + i];
        scores[i] = table.scores[start + i];
        pins[i] = table.pins[start + i];
        rows[i] = table.rows[start + i];
        if (tags[i] != 0) clear_slot(table, start + i);
      }
      for (int64_t i = 0; i < kBucket; ++i) {
        if (tags[i] == 0) continue;
        const uint64_t hash = hash_of(keys[i]);
        const IdPlace to = space->place(hash);
        const int64_t bucket = old.place(hash).first == start ? to.first : to.second;
        const int64_t slot = bucket + lowest_bit(matches(table.tags + bucket, 0));
        fill_slot(table, slot, tags[i], keys[i], scores[i], pins[i]);
        table.rows[slot] = rows[i];
      }
    }
  return true;
}

// Grows while `ids` would fill more of the slots in use than they may.
MERLIN_ALWAYS_INLINE void grow_for(const IdTable& table, int64_t ids, IdSpace* space) {
  while (kFullOf * ids > kFullAt * space->active_slots(table.shape) && grow(table, space)) {
  }
}

// A slot of two full buckets of a dynamic table that can't grow: the first whose id has an empty
// one in its other bucket, to which it moves with its row. Else kNoSlot.
MERLIN_ALWAYS_INLINE int64_t make_room(const IdTable& table, const IdSpace& space,
                                       const IdPlace& place) {
  for (int i = 0; i < 2 * kBucket; ++i) {
    const int64_t slot = place.slot(i);
    const IdPlace its = space.place(hash_of(table.keys[slot]));
    const int64_t other = its.first == slot - slot % kBucket ? its.second : its.first;
    const uint32_t empty = matches(table.tags + other, 0);
    if (empty == 0) continue;
    const int64_t to = other + lowest_bit(empty);
    fill_slot(table, to, table.tags[slot], table.keys[slot], table.scores[slot], table.pins[slot]);
    table.rows[to] = table.rows[slot];
    return slot;
  }
  return kNoSlot;
}

// An id that has no slot and wants one.
struct Claim {
  uint64_t hash;
  uint32_t score;
  uint32_t times, seen;  // in this step, and in all as far as is known
  uint16_t pin;
  bool sure;  // wins against any id
};

// The slot that an id gets, or kNoSlot; its tag, score, pin and row are written. Its key isn't: the
// caller hands what it got to name_slot, for many ids together, whose cache misses are under way by
// then. The tally says what else the call did so far.
struct Given {
  int64_t slot;
  bool evicts;
  bool lost;  // against the id that would have gone
};

MERLIN_ALWAYS_INLINE Given give_slot(const IdTable& table, const Step& step, Claim claim,
                                     IdSpace* space, Tally* tally) {
  IdPlace place = space->place(claim.hash);
  Given given = {kNoSlot, false, false};
  const bool has_row = !table.dynamic() || table.meters[kUsed] + tally->inserted - tally->evicted <
                                               table.shape.max_rows;
  if (has_row && !space->full) {
    given.slot = empty_slot(table, place);
    while (given.slot == kNoSlot && grow(table, space)) {
      place = space->place(claim.hash);
      given.slot = empty_slot(table, place);
    }
    if (given.slot == kNoSlot && table.dynamic()) given.slot = make_room(table, *space, place);
  }
  given.evicts = given.slot == kNoSlot;
  if (given.evicts) {
    if (table.dynamic() && !step.policy.evict) return given;
    const int64_t slot = victim(table, place, step);
    if (slot == kNoSlot) return given;
    given.lost = !claim.sure &&
                 !step.wins(table.scores[slot], claim.times, claim.seen, claim.hash, &claim.score);
    if (given.lost) return given;
    given.slot = slot;
    ++tally->evicted;
  } else if (table.dynamic()) {
    table.rows[given.slot] = static_cast<int32_t>(take_row(table));
  }
  ++tally->inserted;
  table.tags[given.slot] = place.tag;
  table.scores[given.slot] = claim.score;
  table.pins[given.slot] = claim.pin;
  return given;
}

// Writes the key, and what changed. Before it has, nothing may grow.
void name_slot(const IdTable& table, const Given& given, int64_t id, IdChanges* changes);

}  // namespace merlin
