#include "core/id_table.h"

#include <gtest/gtest.h>

#include "tests/id_oracle.h"

namespace merlin {
namespace {

const std::vector<PolicyKind> kKinds = {
    PolicyKind::kLru,      PolicyKind::kLfu, PolicyKind::kDecayedLfu, PolicyKind::kEpochLru,
    PolicyKind::kEpochLfu, PolicyKind::kTtl, PolicyKind::kCustom};

IdShape shape_of(int64_t shards, int64_t buckets, int64_t filter_lines, int64_t initial = 0,
                 int64_t max_rows = 0) {
  const int64_t slots = shards * buckets * kBucket;
  return {slots,        shards,
          buckets,      initial > 0 ? initial : buckets,
          filter_lines, max_rows > 0 ? max_rows : slots};
}

// Ids of a call, some of them several times, in two lists with padding among them.
struct Batch {
  Batch(Random& random, int64_t size, int64_t space) : rows(2) {
    for (int f = 0; f < 2; ++f)
      for (int64_t i = 0; i < size; ++i) {
        // Popular and rare ones; numbers at the ends of int64 too.
        const int64_t x = random.below(2) == 0 ? random.below(space / 8 + 1) : random.below(space);
        ids[f].push_back(x % 3 == 0 ? INT64_MIN + x : x % 3 == 1 ? INT64_MAX - x : x);
        counts[f].push_back(1 + random.below(4));
        scores[f].push_back(random.below(4) == 0 ? 7 : random.below(int64_t{1} << 32));
        if (random.below(10) == 0) ids[f].back() = kPadding;
      }
  }

  std::vector<IdList> lists(bool counted, bool scored) {
    std::vector<IdList> all;
    for (int f = 0; f < 2; ++f) {
      rows[f].assign(ids[f].size(), -99);
      all.push_back({ids[f].data(), counted ? counts[f].data() : nullptr,
                     scored ? scores[f].data() : nullptr, static_cast<int64_t>(ids[f].size()), true,
                     kPadding, rows[f].data()});
    }
    return all;
  }

  std::vector<Seen> distinct(bool counted) const {
    std::map<int64_t, Seen> all;
    for (int f = 0; f < 2; ++f)
      for (size_t i = 0; i < ids[f].size(); ++i) {
        if (ids[f][i] == kPadding) continue;
        Seen& s = all.try_emplace(ids[f][i], Seen{ids[f][i], 0, 0}).first->second;
        s.count += counted ? counts[f][i] : 1;
        s.score = std::max(s.score, scores[f][i]);
      }
    std::vector<Seen> out;
    for (const auto& [id, s] : all) out.push_back(s);
    return out;
  }

  static constexpr int64_t kPadding = -5;
  std::vector<int64_t> ids[2], counts[2], scores[2];
  std::vector<std::vector<int64_t>> rows;
};

void expect_same_changes(const IdChanges& changes, const IdOracle& oracle) {
  ASSERT_EQ(changes.rows.size(), oracle.changes.size());
  for (size_t i = 0; i < oracle.changes.size(); ++i) {
    const auto& [row, old, id] = oracle.changes[i];
    ASSERT_EQ(changes.rows[i], row);
    ASSERT_EQ(changes.had_old[i] != 0, old.first);
    ASSERT_EQ(changes.old_ids[i], old.second);
    ASSERT_EQ(changes.new_ids[i], id);
  }
}

// Also takes over scores that the oracle knows up to rounding.
void expect_same_state(IdMemory& memory, IdOracle& oracle) {
  const IdTable table = memory.table();
  const IdEntries all = entries(table, -1);
  ASSERT_EQ(all.slots.size(), oracle.slots.size());
  size_t i = 0;
  for (auto& [number, slot] : oracle.slots) {
    ASSERT_EQ(all.slots[i], number);
    ASSERT_EQ(all.ids[i], slot.id);
    ASSERT_EQ(all.rows[i], slot.row);
    ASSERT_LT(std::fabs(all.scores[i] - slot.score), 1.01);
    if (oracle.policy.kind != PolicyKind::kDecayedLfu) {
      ASSERT_EQ(all.scores[i], slot.score);
    }
    slot.score = static_cast<double>(all.scores[i]);
    ASSERT_EQ(table.pins[number], slot.seen == 0 ? 0 : slot.seen % 65535 + 1);
    ++i;
  }
  const int64_t* m = table.meters;
  ASSERT_EQ(m[kClock], oracle.clock);
  ASSERT_EQ(m[kUsed], static_cast<int64_t>(oracle.slots.size()));
  ASSERT_EQ(m[kLookedUp], oracle.looked_up);
  ASSERT_EQ(m[kHits], oracle.hits);
  ASSERT_EQ(m[kInserted], oracle.inserted);
  ASSERT_EQ(m[kEvicted], oracle.evicted);
  ASSERT_EQ(m[kNotAdmitted], oracle.not_admitted);
  ASSERT_EQ(m[kOverflowed], oracle.overflowed);
  for (const auto& [shard, seen] : oracle.sightings) ASSERT_EQ(m[kFill + shard], seen);
  for (const auto& [place, count] : oracle.counters) ASSERT_EQ(table.filter[place], count);
  int64_t by_shard = 0;
  for (int64_t s = 0; s < table.shape.shards; ++s) {
    const IdEntries part = entries(table, s);
    by_shard += part.ids.size();
    for (int64_t id : part.ids) ASSERT_EQ(shard_of(table.shape, id), s);
  }
  ASSERT_EQ(by_shard, m[kUsed]);
}

void run_stream(const IdShape& shape, const IdPolicy& policy, bool dynamic, uint64_t seed,
                int steps, int64_t size, int64_t space) {
  Random random(seed);
  IdMemory memory(shape, dynamic);
  IdOracle oracle(shape, policy, dynamic);
  const IdTable table = memory.table();
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    if (random.below(3) == 0) {
      release(table);
      oracle.released = oracle.clock;
    }
    if (random.below(6) == 0) {
      oracle.epoch = std::min(oracle.epoch + random.below(3), kMaxEpoch);
      oracle.epoch_began = oracle.clock;
      set_epoch(table, oracle.epoch);
    }
    Batch batch(random, random.below(size + 1), space);
    const bool counted = random.below(2) == 0;
    auto lists = batch.lists(counted, policy.kind == PolicyKind::kCustom);
    std::map<int64_t, int64_t> rows;
    oracle.changes.clear();
    IdChanges changes;
    const IdMemory before = memory;
    const IdTrouble trouble = assign(table, policy, lists.data(), 2, Serial(), &changes);
    if (!oracle.assign(batch.distinct(counted), &rows)) {
      ASSERT_EQ(trouble.kind, oracle.crowded ? IdTrouble::kCrowded : IdTrouble::kFull);
      ASSERT_TRUE(changes.rows.empty());
      if (oracle.crowded) {
        const int64_t id = trouble.missing;
        ASSERT_EQ(rows.at(id), -1);
        ASSERT_EQ(oracle.where.count(id), 0u);
        expect_same_state(memory, oracle);
      } else {
        ASSERT_EQ(trouble.free, static_cast<int64_t>(oracle.free.size()));
        ASSERT_GT(trouble.missing, trouble.free);
        ASSERT_TRUE(memory == before);
      }
      for (int i = 0; i < 8 && !oracle.where.empty(); ++i) {
        const int64_t id = oracle.where.begin()->first, row = oracle.slots[oracle.where[id]].row;
        int64_t erased;
        erase(table, &id, 1, &erased);
        ASSERT_EQ(erased, row);
        oracle.forget(id);
      }
      continue;
    }
    ASSERT_EQ(trouble.kind, IdTrouble::kNone);
    for (int f = 0; f < 2; ++f)
      for (size_t i = 0; i < batch.ids[f].size(); ++i)
        ASSERT_EQ(batch.rows[f][i],
                  batch.ids[f][i] == Batch::kPadding ? -1 : rows[batch.ids[f][i]]);
    expect_same_changes(changes, oracle);
    expect_same_state(memory, oracle);
    if (testing::Test::HasFatalFailure()) return;

    // What is found without training, and nothing written by it.
    const IdMemory after = memory;
    find(table, policy, lists.data(), 2, Serial());
    for (int f = 0; f < 2; ++f)
      for (size_t i = 0; i < batch.ids[f].size(); ++i) {
        const int64_t id = batch.ids[f][i];
        const auto found = oracle.where.find(id);
        ASSERT_EQ(batch.rows[f][i], id == Batch::kPadding ? -1
                                    : found == oracle.where.end()
                                        ? oracle.without(id)
                                        : oracle.slots[found->second].row);
      }
    ASSERT_TRUE(memory == after);
  }
}

TEST(IdTable, ManagedIsTheOracle) {
  uint64_t seed = 0;
  for (PolicyKind kind : kKinds)
    for (int64_t admit_after : {1, 1, 3, 3})
      for (int64_t shards : {1, 4, 4}) {
        IdPolicy policy;
        policy.kind = kind;
        policy.half_life = 3;
        policy.ttl = 2;
        policy.admit_after = admit_after;
        policy.admit_probability = seed % 3 == 0 ? 0.5 : 1;
        policy.contest = seed % 3 == 1;
        policy.open_routes = seed % 4;
        policy.oov_rows = seed % 2 == 0 ? 0 : 7;
        SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", admit after " +
                     std::to_string(admit_after) + ", shards " + std::to_string(shards));
        run_stream(shape_of(shards, 3, admit_after > 1 ? 2 : 0), policy, false, ++seed, 40, 60,
                   600);
        run_stream(shape_of(1, 1, admit_after > 1 ? 1 : 0), policy, false, ++seed, 40, 30, 90);
        if (HasFatalFailure()) return;
      }
}

TEST(IdTable, DynamicIsTheOracle) {
  uint64_t seed = 100;
  for (PolicyKind kind : kKinds)
    for (bool evict : {false, true}) {
      IdPolicy policy;
      policy.kind = kind;
      policy.half_life = 5;
      policy.evict = evict;
      policy.contest = evict;
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + (evict ? ", evicts" : ""));
      run_stream(shape_of(1, 16, 0, 1, 190), policy, true, ++seed, 40, 40, 500);
      run_stream(shape_of(4, 8, 0, 1, 384), policy, true, ++seed, 40, 60, 900);
      run_stream(shape_of(1, 4, 0, 2, 64), policy, true, ++seed, 40, 30, 90);
      if (HasFatalFailure()) return;
    }
}

// Equal ids counted before or one by one, in any order, in any number of lists, on any number of
// threads: not a bit differs.
TEST(IdTable, OnlyTheSetOfIdsMatters) {
  for (PolicyKind kind : {PolicyKind::kLru, PolicyKind::kDecayedLfu, PolicyKind::kCustom})
    for (bool dynamic : {false, true}) {
      IdPolicy policy;
      policy.kind = kind;
      policy.half_life = 2;
      policy.admit_after = dynamic ? 1 : 2;
      const IdShape shape =
          dynamic ? shape_of(8, 64, 0, 2, 6000) : shape_of(8, 40, policy.admit_after > 1 ? 80 : 0);
      IdMemory start(shape, dynamic), one = start;
      std::vector<IdMemory> many(kThreadCounts.size(), start);
      Random random(static_cast<uint64_t>(kind) + 1);
      for (int step = 0; step < 2; ++step) {
        std::vector<int64_t> ids, scores;
        std::map<int64_t, std::pair<int64_t, int64_t>> sums;
        for (int64_t i = 0; i < 70000; ++i) {
          ids.push_back(random.below(1 + random.below(20000)));
          scores.push_back(random.below(1000));
          auto& [count, score] = sums[ids.back()];
          ++count;
          score = std::max(score, scores.back());
        }
        std::vector<int64_t> distinct, counts, highest, rows(ids.size()), few(sums.size());
        for (const auto& [id, sum] : sums) {
          distinct.push_back(id);
          counts.push_back(sum.first);
          highest.push_back(sum.second);
        }
        const bool scored = kind == PolicyKind::kCustom;
        const IdList summed = {distinct.data(),
                               counts.data(),
                               scored ? highest.data() : nullptr,
                               static_cast<int64_t>(distinct.size()),
                               false,
                               0,
                               few.data()};
        IdChanges expected;
        assign(one.table(), policy, &summed, 1, Serial(), &expected);
        for (size_t t = 0; t < many.size(); ++t) {
          std::vector<IdList> lists;
          const int64_t size = static_cast<int64_t>(ids.size()),
                        parts = 1 + static_cast<int64_t>(t);
          for (int64_t p = 0; p < parts; ++p) {
            const int64_t from = size * p / parts;
            lists.push_back({ids.data() + from, nullptr, scored ? scores.data() + from : nullptr,
                             size * (p + 1) / parts - from, false, 0, rows.data() + from});
          }
          IdChanges changes;
          assign(many[t].table(), policy, lists.data(), parts, Threads(kThreadCounts[t]), &changes);
          ASSERT_TRUE(many[t] == one) << kThreadCounts[t] << " threads";
          ASSERT_EQ(changes.rows, expected.rows);
          ASSERT_EQ(changes.old_ids, expected.old_ids);
          ASSERT_EQ(changes.new_ids, expected.new_ids);
          ASSERT_EQ(changes.had_old, expected.had_old);
          for (size_t i = 0; i < distinct.size(); ++i) sums[distinct[i]].first = few[i];
          for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(rows[i], sums[ids[i]].first);
          find(many[t].table(), policy, lists.data(), parts, Threads(kThreadCounts[t]));
          for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(rows[i], sums[ids[i]].first);
        }
        release(one.table());
        for (IdMemory& m : many) release(m.table());
      }
      ASSERT_GT(one.table().meters[kEvicted], 0);
    }
}

}  // namespace
}  // namespace merlin
