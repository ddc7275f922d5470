// How many of the ids seen most a table keeps, beside a cache that searches all of its slots.
#include <gtest/gtest.h>

#include "core/counting_filter.h"
#include "tests/id_oracle.h"

namespace merlin {
namespace {

constexpr int64_t kCapacity = 2048, kSpace = 20480, kBatch = 2048;
constexpr int kSteps = 600;

class Zipf {
 public:
  Zipf() {
    double sum = 0;
    for (int64_t i = 0; i < kSpace; ++i) below_.push_back(sum += std::pow(i + 1.0, -1.05));
  }
  int64_t operator()() {
    const double u = std::ldexp(static_cast<double>(engine_() >> 11), -53) * below_.back();
    return std::lower_bound(below_.begin(), below_.end(), u) - below_.begin();
  }

 private:
  std::mt19937_64 engine_{11};
  std::vector<double> below_;
};

// LFU that looks for the lowest count in all slots; the same filter, and the same contest.
class FullSearch {
 public:
  FullSearch(const IdShape& shape, const IdPolicy& policy)
      : policy_(policy),
        counters_(shape.filter_size()),
        filter_{counters_.data(), shape.filter_lines} {}

  void assign(const std::map<int64_t, int64_t>& counts) {
    std::vector<std::pair<int64_t, int64_t>> missing;
    std::set<int64_t> here;
    for (const auto& [id, count] : counts) {
      const auto found = scores_.find(id);
      if (found == scores_.end()) {
        missing.emplace_back(id, count);
        continue;
      }
      order_.erase({found->second, id});
      order_.insert({found->second += count, id});
      here.insert(id);
    }
    // All before it were seen in this step; those that come now were, too.
    auto lowest = order_.begin();
    for (auto [id, count] : missing) {
      const int64_t times = count;
      if (policy_.admit_after > 1) {
        ++fill_;
        const uint32_t n = static_cast<uint32_t>(count);
        count = CountingFilter::add(filter_.place(hash_of(id), 0), n);
        if (count < policy_.admit_after) continue;
      }
      if (static_cast<int64_t>(scores_.size()) == kCapacity) {
        while (lowest != order_.end() && here.count(lowest->second) != 0) ++lowest;
        if (lowest == order_.end()) continue;
        if (policy_.contest) {
          const int64_t theirs = lowest->first;
          const double chance = static_cast<double>(times) / static_cast<double>(theirs + 1);
          if (count <= theirs && std::ldexp(static_cast<double>(random_() >> 11), -53) >= chance)
            continue;
          count = std::max(count, theirs + 1);
        }
        scores_.erase(lowest->second);
        lowest = order_.erase(lowest);
      }
      scores_[id] = count;
      order_.insert({count, id});
      here.insert(id);
    }
    if (policy_.admit_after > 1) filter_.age(0, &fill_);
  }

  int64_t of_top() const { return std::distance(scores_.begin(), scores_.lower_bound(kCapacity)); }

 private:
  IdPolicy policy_;
  std::mt19937_64 random_{5};
  std::map<int64_t, int64_t> scores_;
  std::set<std::pair<int64_t, int64_t>> order_;
  std::vector<uint8_t> counters_;
  CountingFilter filter_;
  int64_t fill_ = 0;
};

struct Kept {
  int64_t of_top, of_top_by_full_search, evicted;
};

Kept run(const IdPolicy& policy) {
  Zipf zipf;
  const IdShape shape = managed_shape(kCapacity, policy.admit_after);
  EXPECT_EQ(shape.slots, kCapacity);
  IdMemory memory(shape);
  FullSearch full(shape, policy);
  std::vector<int64_t> ids(kBatch), rows(kBatch);
  for (int step = 0; step < kSteps; ++step) {
    std::map<int64_t, int64_t> counts;
    for (int64_t& id : ids) ++counts[id = zipf()];
    full.assign(counts);
    const IdList list = {ids.data(), nullptr, nullptr, kBatch, false, 0, rows.data()};
    IdChanges changes;
    assign(memory.table(), policy, &list, 1, Serial(), &changes);
    release(memory.table());
  }
  Kept kept = {0, full.of_top(), memory.meters[kEvicted]};
  for (int64_t id : entries(memory.table(), -1).ids) kept.of_top += id < kCapacity;
  return kept;
}

TEST(IdTable, KeepsTheIdsSeenMost) {
  for (const bool contest : {false, true})
    for (const int64_t admit_after : {1, 3}) {
      if (!contest && admit_after == 1) continue;  // no admission
      IdPolicy policy;
      policy.kind = PolicyKind::kLfu;
      policy.admit_after = admit_after;
      policy.contest = contest;
      const Kept kept = run(policy);
      EXPECT_GT(kept.of_top_by_full_search, 0.79 * kCapacity);
      EXPECT_GE(kept.of_top, 0.95 * kept.of_top_by_full_search)
          << kept.of_top << " of " << kept.of_top_by_full_search;
      EXPECT_LT(kept.evicted, 30 * kSteps);
    }
}

}  // namespace
}  // namespace merlin
