// A step's work on many tables, cut into pieces for threads. Pieces follow each other table by
// table: all threads are on one table at a time, which the last-level cache may hold.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace merlin {

// Where the row_splits of a pooling go wrong: they must begin at 0, never fall and end at N.
// -1 when they are right.
int64_t bad_split(const Pooling& pooling);

// The first weight that is not finite, or -1.
int64_t bad_weight(const Pooling& pooling);

struct BadLine {
  int64_t task = -1;  // which of the tasks; -1 for none
  int64_t position = -1;
};

// Pools every bag of every task. Lookups of lines outside their table are left out; the first of
// them is returned.
BadLine lookup(std::vector<LookupTask> tasks, const Parallel& parallel);

void weight_gradients(const std::vector<WeightGradientTask>& tasks, const Parallel& parallel);

// One feature's pooling as the backward pass sees it.
class GradientOf {
 public:
  // pooled_gradient [B, D]; winners [B, D] or null. by_position: of the table.
  GradientOf(const Pooling& pooling, const float* pooled_gradient, const int32_t* winners,
             bool by_position);
  const FeatureGradient& view() const { return view_; }

 private:
  std::unique_ptr<float[]> scale_;
  std::unique_ptr<int32_t[]> bag_of_;
  FeatureGradient view_;
};

struct ValuesTask {
  TableGradient gradient;
  float* values;  // [U, D]
};

void values(const std::vector<ValuesTask>& tasks, const Parallel& parallel);
void update(const std::vector<UpdateTask>& tasks, const Parallel& parallel);

void initialize(const InitializeTask& task, const Parallel& parallel);

}  // namespace merlin
