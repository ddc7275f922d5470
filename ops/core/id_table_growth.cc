// Sizes, and what a call has to say.
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
  const auto buckets_for = [&](int64_t rows) {
    return up(up(kFullOf * rows, kFullAt), s.shards * kBucket);
  };
  s.buckets = s.initial = buckets_for(initial);
  while (s.buckets < buckets_for(max_rows)) s.buckets *= 2;
  s.slots = s.shards * s.buckets * kBucket;
  s.max_rows = max_rows;
  return s;
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

void name_slot(const IdTable& table, const Given& given, int64_t id, IdChanges* changes) {
  changes->rows.push_back(row_of(table, given.slot));
  changes->old_ids.push_back(given.evicts ? table.keys[given.slot] : 0);
  changes->had_old.push_back(given.evicts ? 1 : 0);
  changes->new_ids.push_back(id);
  table.keys[given.slot] = id;
}

}  // namespace merlin
