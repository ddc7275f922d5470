// Sizes, rows that are handed out and taken back, and the index that grows in place.
#include <algorithm>

#include "id_insert.h"

namespace merlin {
namespace {

int64_t up(int64_t x, int64_t by) { return (x + by - 1) / by; }

// A power of two: as many shards as have `ids` ids each, at least one.
int64_t shards_for(int64_t capacity, int64_t ids) {
  int64_t shards = 1;
  while (shards < kMaxShards && 2 * shards * ids <= capacity) shards *= 2;
  return shards;
}

}  // namespace

IdShape managed_shape(int64_t capacity, int64_t admit_after) {
  IdShape s{};
  s.shards = shards_for(capacity, 512 * kBucket);
  s.buckets = s.initial = up(capacity, s.shards * kBucket);
  s.slots = s.max_rows = s.shards * s.buckets * kBucket;
  // Four counters a slot.
  s.filter_lines = admit_after > 1 ? up(4 * s.buckets * kBucket, kFilterLine) : 0;
  return s;
}

IdShape dynamic_shape(int64_t initial, int64_t max_rows) {
  IdShape s{};
  s.shards = shards_for(max_rows, 512 * kBucket);
  const auto buckets_for = [&](int64_t rows) { return up(up(4 * rows, 3), s.shards * kBucket); };
  s.buckets = s.initial = buckets_for(initial);
  while (s.buckets < buckets_for(max_rows)) s.buckets *= 2;
  s.slots = s.shards * s.buckets * kBucket;
  s.max_rows = max_rows;
  return s;
}

int64_t take_row(const IdTable& table) {
  int64_t& word = table.meters[kFreeFrom];
  while (~table.taken[word] == 0) ++word;
  const uint64_t bits = static_cast<uint64_t>(table.taken[word]);
  const int bit = __builtin_ctzll(~bits);
  table.taken[word] = static_cast<int64_t>(bits | uint64_t{1} << bit);
  const int64_t row = 64 * word + bit;
  table.meters[kHighest] = std::max(table.meters[kHighest], row + 1);
  return row;
}

void free_row(const IdTable& table, int64_t row) {
  const int64_t word = row / 64;
  const uint64_t bit = uint64_t{1} << (row % 64);
  table.taken[word] = static_cast<int64_t>(static_cast<uint64_t>(table.taken[word]) & ~bit);
  table.meters[kFreeFrom] = std::min(table.meters[kFreeFrom], word);
}

// Bucket b becomes 2b and 2b + 1. From the last to the first, so that where entries go was emptied
// before.
bool grow(const IdTable& table, IdSpace* space) {
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

void grow_for(const IdTable& table, int64_t ids, IdSpace* space) {
  while (4 * ids > 3 * space->active_slots(table.shape) && grow(table, space)) {
  }
}

void Tally::write(int64_t* meters) const {
  meters[kLookedUp] += looked_up;
  meters[kHits] += hits;
  meters[kInserted] += inserted;
  meters[kEvicted] += evicted;
  meters[kNotAdmitted] += not_admitted;
  meters[kOverflowed] += overflowed;
  meters[kUsed] += inserted - evicted;
}

void append(IdChanges* to, const IdChanges& from) {
  to->rows.insert(to->rows.end(), from.rows.begin(), from.rows.end());
  to->old_ids.insert(to->old_ids.end(), from.old_ids.begin(), from.old_ids.end());
  to->new_ids.insert(to->new_ids.end(), from.new_ids.begin(), from.new_ids.end());
  to->had_old.insert(to->had_old.end(), from.had_old.begin(), from.had_old.end());
}

Given give_slot(const IdTable& table, const Step& step, uint64_t hash, uint32_t score, uint16_t pin,
                IdSpace* space, Tally* tally) {
  IdPlace place = space->place(hash);
  Given given = {kNoSlot, false};
  const bool has_row = !table.dynamic() || table.meters[kUsed] + tally->inserted - tally->evicted <
                                               table.shape.max_rows;
  if (has_row && !space->full) {
    given.slot = empty_slot(table, place);
    while (given.slot == kNoSlot && grow(table, space)) {
      place = space->place(hash);
      given.slot = empty_slot(table, place);
    }
  }
  given.evicts = given.slot == kNoSlot;
  if (given.evicts) {
    if (table.dynamic() && !step.policy.evict) return given;
    given.slot = victim(table, place, step);
    if (given.slot == kNoSlot) return given;
    ++tally->evicted;
  } else if (table.dynamic()) {
    table.rows[given.slot] = static_cast<int32_t>(take_row(table));
  }
  ++tally->inserted;
  table.tags[given.slot] = place.tag;
  table.scores[given.slot] = score;
  table.pins[given.slot] = pin;
  return given;
}

void name_slot(const IdTable& table, const Given& given, int64_t id, IdChanges* changes) {
  changes->rows.push_back(row_of(table, given.slot));
  changes->old_ids.push_back(given.evicts ? table.keys[given.slot] : 0);
  changes->had_old.push_back(given.evicts ? 1 : 0);
  changes->new_ids.push_back(id);
  table.keys[given.slot] = id;
}

}  // namespace merlin
