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

// LFU that evicts the lowest count of all slots; the same filter decides who comes in.
class FullSearch {
 public:
  explicit FullSearch(const IdShape& shape)
      : counters_(shape.filter_size()), filter_{counters_.data(), shape.filter_lines} {}

  void assign(const std::map<int64_t, int64_t>& counts, int64_t admit_after) {
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
    for (auto [id, count] : missing) {
      if (admit_after > 1) {
        ++fill_;
        const uint32_t n = static_cast<uint32_t>(count);
        count = CountingFilter::add(filter_.place(hash_of(id), 0), n);
        if (count < admit_after) continue;
      }
      if (static_cast<int64_t>(scores_.size()) == kCapacity) {
        auto lowest = order_.begin();
        while (lowest != order_.end() && here.count(lowest->second) != 0) ++lowest;
        if (lowest == order_.end()) continue;
        scores_.erase(lowest->second);
        order_.erase(lowest);
      }
      scores_[id] = count;
      order_.insert({count, id});
      here.insert(id);
    }
    filter_.age(0, &fill_);
  }

  int64_t of_top() const { return std::distance(scores_.begin(), scores_.lower_bound(kCapacity)); }

 private:
  std::map<int64_t, int64_t> scores_;
  std::set<std::pair<int64_t, int64_t>> order_;
  std::vector<uint8_t> counters_;
  CountingFilter filter_;
  int64_t fill_ = 0;
};

TEST(IdTable, KeepsTheIdsSeenMost) {
  Zipf zipf;
  IdPolicy policy;
  policy.kind = PolicyKind::kLfu;
  policy.admit_after = 3;
  const IdShape shape = managed_shape(kCapacity, policy.admit_after);
  ASSERT_EQ(shape.slots, kCapacity);
  IdMemory memory(shape);
  FullSearch full(shape);
  std::vector<int64_t> ids(kBatch), rows(kBatch);
  for (int step = 0; step < kSteps; ++step) {
    std::map<int64_t, int64_t> counts;
    for (int64_t& id : ids) ++counts[id = zipf()];
    full.assign(counts, policy.admit_after);
    const IdList list = {ids.data(), nullptr, nullptr, kBatch, false, 0, rows.data()};
    IdChanges changes;
    assign(memory.table(), policy, &list, 1, Serial(), &changes);
    release(memory.table());
  }
  int64_t kept = 0;
  for (int64_t id : entries(memory.table(), -1).ids) kept += id < kCapacity;
  EXPECT_GT(full.of_top(), 0.7 * kCapacity);
  EXPECT_GE(kept, 0.95 * full.of_top()) << kept << " of " << full.of_top();
  RecordProperty("kept", static_cast<int>(kept));
  RecordProperty("full", static_cast<int>(full.of_top()));
}

}  // namespace
}  // namespace merlin
