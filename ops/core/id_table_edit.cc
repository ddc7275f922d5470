// What is done to a table on demand, outside of training steps.
#include <algorithm>
#include <utility>

#include "id_insert.h"

namespace merlin {
namespace {

void add(IdEntries* to, const IdTable& table, int64_t slot) {
  to->slots.push_back(slot);
  to->ids.push_back(table.keys[slot]);
  to->rows.push_back(row_of(table, slot));
  to->scores.push_back(table.scores[slot]);
}

void forget(const IdTable& table, int64_t slot) {
  if (table.dynamic()) free_row(table, table.rows[slot]);
  clear_slot(table, slot);
  --table.meters[kUsed];
}

// Calls visit(slot) for used slots in order.
template <class Visit>
void visit_used(const IdTable& table, int64_t shard, const Visit& visit) {
  const IdSpace space = IdSpace::of(table);
  const int64_t buckets = space.active_slots(table.shape) / kBucket;
  const int64_t first = shard < 0 ? 0 : shard * space.of_shard / kBucket;
  const int64_t step = shard < 0 ? 1 : space.of_bucket / kBucket;
  const int64_t end = shard < 0 || table.dynamic() ? buckets : first + table.shape.buckets;
  for (int64_t b = first; b < end; b += step)
    for (int64_t slot = b * kBucket; slot < (b + 1) * kBucket; ++slot)
      if (table.tags[slot] != 0) visit(slot);
}

bool has_duplicates(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

}  // namespace

IdTrouble upsert(const IdTable& table, const IdPolicy& policy, const int64_t* ids,
                 const int64_t* scores, int64_t count, int64_t* rows, IdChanges* changes) {
  std::vector<std::pair<uint64_t, int64_t>> order;
  for (int64_t i = 0; i < count; ++i) {
    if (scores && (scores[i] < 0 || scores[i] > UINT32_MAX)) return {IdTrouble::kScore, 0, i};
    order.emplace_back(hash_of(ids[i]), i);
  }
  std::sort(order.begin(), order.end());
  IdSpace space = IdSpace::of(table);
  std::vector<uint64_t> missing;
  for (const auto& [hash, i] : order)
    if (find_slot(table, space.place(hash), ids[i]) == kNoSlot) missing.push_back(hash);
  const int64_t distinct = std::unique(missing.begin(), missing.end()) - missing.begin();
  const int64_t free = table.shape.max_rows - table.meters[kUsed];
  if (table.dynamic()) {
    if (!policy.evict && distinct > free) return {IdTrouble::kFull, -1, -1, distinct, free};
    grow_for(table, table.meters[kUsed] + std::min(distinct, free), &space);
  }

  const Step step = Step::of(table.meters, policy);
  Tally tally;
  for (const auto& [hash, i] : order) {
    const int64_t slot = find_slot(table, space.place(hash), ids[i]);
    const uint32_t given = scores ? static_cast<uint32_t>(scores[i]) : 0;
    if (slot == kNoSlot) {
      const Given made =
          give_slot(table, step, {hash, scores ? given : step.first(1, 0, hash), 1, 1, 0, true},
                    &space, &tally);
      if (made.slot != kNoSlot) name_slot(table, made, ids[i], changes);
    } else if (scores) {
      table.scores[slot] = given;
    }
  }
  tally.write(table.meters);
  for (const auto& [hash, i] : order) {
    const int64_t slot = find_slot(table, space.place(hash), ids[i]);
    rows[i] = slot == kNoSlot ? kNoLine : row_of(table, slot);
  }
  return {};
}

void erase(const IdTable& table, const int64_t* ids, int64_t count, int64_t* rows) {
  const IdSpace space = IdSpace::of(table);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = find_slot(table, space.place(hash_of(ids[i])), ids[i]);
    rows[i] = slot == kNoSlot ? kNoLine : row_of(table, slot);
    if (slot != kNoSlot) forget(table, slot);
  }
}

IdEntries restrict_entries(const IdTable& table, const IdPolicy& policy, int64_t lowest,
                           int64_t keep) {
  const Step step = Step::of(table.meters, policy);
  std::vector<int64_t> gone;
  std::vector<std::pair<uint32_t, int64_t>> rest;  // (score, slot), unpinned
  visit_used(table, -1, [&](int64_t slot) {
    if (step.pinned(table.pins[slot])) return;
    if (table.scores[slot] < lowest)
      gone.push_back(slot);
    else
      rest.emplace_back(table.scores[slot], slot);
  });
  const int64_t left = table.meters[kUsed] - static_cast<int64_t>(gone.size());
  const int64_t more = std::clamp<int64_t>(left - keep, 0, static_cast<int64_t>(rest.size()));
  std::nth_element(rest.begin(), rest.begin() + more, rest.end());
  for (int64_t i = 0; i < more; ++i) gone.push_back(rest[i].second);
  std::sort(gone.begin(), gone.end());
  IdEntries out;
  for (const int64_t slot : gone) {
    add(&out, table, slot);
    forget(table, slot);
  }
  return out;
}

int64_t score_of(const IdTable& table, const IdPolicy& policy, int64_t clock, int64_t count) {
  int64_t meters[kFill];
  std::copy_n(table.meters, static_cast<int64_t>(kFill), meters);
  meters[kClock] = clock;
  const uint32_t number = saturated(static_cast<uint64_t>(std::max<int64_t>(count, 0)));
  const Step step = Step::of(meters, policy);
  if (policy.kind == PolicyKind::kDecayedLfu)  // never rounded up
    return number == 0 ? 0
                       : saturated(static_cast<uint64_t>(
                             step.log_base + logarithm(uint64_t{number} << 31, UINT32_MAX)));
  return step.first(number, number, 0);
}

IdEntries entries(const IdTable& table, int64_t shard) {
  IdEntries out;
  visit_used(table, shard, [&](int64_t slot) { add(&out, table, slot); });
  return out;
}

bool place(const IdTable& table, const IdEntries& entries) {
  const IdSpace space = IdSpace::of(table);
  const size_t count = entries.slots.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t slot = entries.slots[i], row = entries.rows[i], score = entries.scores[i];
    const IdPlace place = space.place(hash_of(entries.ids[i]));
    const int64_t bucket = slot < 0 ? kNoSlot : slot / kBucket * kBucket;
    if (bucket != place.first && bucket != place.second) return false;
    if (table.tags[slot] != 0 || score < 0 || score > UINT32_MAX) return false;
    if (table.dynamic() ? row < 0 || row >= table.shape.max_rows : row != slot) return false;
  }
  if (has_duplicates(entries.slots) || has_duplicates(entries.ids) || has_duplicates(entries.rows))
    return false;
  for (size_t i = 0; i < count; ++i) {
    const int64_t slot = entries.slots[i], row = entries.rows[i];
    fill_slot(table, slot, space.place(hash_of(entries.ids[i])).tag, entries.ids[i],
              static_cast<uint32_t>(entries.scores[i]), 0);
    if (!table.dynamic()) continue;
    table.rows[slot] = static_cast<int32_t>(row);
    const uint64_t bits = static_cast<uint64_t>(table.taken[row / 64]);
    table.taken[row / 64] = static_cast<int64_t>(bits | uint64_t{1} << (row % 64));
  }
  return true;
}

int64_t shard_of(const IdShape& shape, int64_t id) {
  IdSpace space{};
  space.shard_bits = 63 - leading_zeros(static_cast<uint64_t>(shape.shards));
  return space.shard(hash_of(id));
}

}  // namespace merlin
