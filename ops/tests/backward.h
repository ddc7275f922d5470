// The way from features and their pooled gradients to a TableGradient, as a step goes it.
#pragma once

#include <memory>
#include <vector>

#include "core/drivers.h"
#include "core/grouping.h"
#include "tests/cases.h"

namespace merlin {

class Backward {
 public:
  // pooled_gradients[f] is [B, D] of feature f. The arguments must outlive this.
  Backward(const std::vector<Feature>& features, Storage& storage,
           const std::vector<std::vector<float>>& pooled_gradients, const Parallel& parallel)
      : table_(storage.table()) {
    std::vector<Pooling> poolings;
    bool by_position = false;
    for (const Feature& f : features) {
      poolings.push_back(f.pooling());
      by_position |= needs_position(poolings.back());
    }
    const int64_t count = static_cast<int64_t>(features.size());
    Grouping grouping(poolings.data(), count, table_.rows);
    grouping.sort(parallel);
    rows_.resize(grouping.size());
    offsets_.resize(grouping.size() + 1);
    sources_.resize(grouping.lookups());
    grouping.emit(parallel, rows_.data(), offsets_.data(), sources_.data());
    winners_.resize(features.size());
    for (size_t f = 0; f < features.size(); ++f) {
      int32_t* winners = nullptr;
      if (features[f].combiner == Combiner::kMax) {
        winners_[f].resize(features[f].bags() * table_.dim);
        std::vector<float> pooled(winners_[f].size());
        winners = winners_[f].data();
        lookup({{table_, poolings[f], pooled.data(), winners}}, parallel);
      }
      parts_.push_back(std::make_unique<GradientOf>(poolings[f], pooled_gradients[f].data(),
                                                    winners, by_position));
      views_.push_back(parts_.back()->view());
    }
    gradient_ = {{rows_.data(), offsets_.data(), sources_.data(), grouping.size()},
                 views_.data(),
                 count,
                 table_.dim,
                 source_shift(count),
                 by_position};
  }

  const TableGradient& gradient() const { return gradient_; }
  const std::vector<int64_t>& rows() const { return rows_; }
  const std::vector<int32_t>& offsets() const { return offsets_; }
  const std::vector<uint32_t>& sources() const { return sources_; }

 private:
  Table table_;
  std::vector<int64_t> rows_;
  std::vector<int32_t> offsets_;
  std::vector<uint32_t> sources_;
  std::vector<std::vector<int32_t>> winners_;
  std::vector<std::unique_ptr<GradientOf>> parts_;
  std::vector<FeatureGradient> views_;
  TableGradient gradient_;
};

inline std::vector<std::vector<float>> random_gradients(Random& random,
                                                        const std::vector<Feature>& features,
                                                        int64_t dim) {
  std::vector<std::vector<float>> all;
  for (const Feature& f : features) all.push_back(random.numbers(f.bags() * dim));
  return all;
}

}  // namespace merlin
