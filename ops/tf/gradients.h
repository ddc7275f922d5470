// What Merlin>Values and Merlin>Update share: the gradients of F features' pooled vectors and the
// groups of T tables, as inputs.
#pragma once

#include <memory>
#include <vector>

#include "core/drivers.h"
#include "tf/poolings.h"

#define MERLIN_GRADIENT_INPUTS        \
  Input("gradients: F * float")       \
      .Input("lines: F * int64")      \
      .Input("row_splits: F * int64") \
      .Input("weights: W * float")    \
      .Input("winners: X * int32")    \
      .Input("rows: T * int64")       \
      .Input("offsets: T * int32")    \
      .Input("sources: T * int32")

namespace merlin {

class Gradients {
 public:
  // Reads and checks the inputs above. The views point into them and into this object.
  tensorflow::Status Read(tensorflow::OpKernelContext* ctx, const PoolingAttrs& attrs);

  const TableGradient& table(int t) const { return tables_[t]; }

 private:
  std::vector<std::unique_ptr<GradientOf>> own_;
  std::vector<std::vector<FeatureGradient>> features_;  // of each table
  std::vector<TableGradient> tables_;
};

}  // namespace merlin
