// The part that lookup, grouping, gradient and update share: F features' lookups in T tables, as op
// attributes and inputs.
#pragma once

#include <string>
#include <vector>

#include "core/types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

// table_of[f]   the table of feature f, in [0, T)
// combiners[f]  sum, mean, sqrtn, max, or none: a vector for each lookup
// weighted[f]   whether the feature has an input among `weights`, in order
// table_rows[t] rows of table t
// hotness[f]    lookups of every bag, or 0: row_splits has them
// names[f]      how errors speak of the feature
#define MERLIN_POOLING_ATTRS                                            \
  Attr("F: int >= 1")                                                   \
      .Attr("T: int >= 1")                                              \
      .Attr("W: int >= 0")                                              \
      .Attr("table_of: list(int)")                                      \
      .Attr("combiners: list({'sum', 'mean', 'sqrtn', 'max', 'none'})") \
      .Attr("weighted: list(bool)")                                     \
      .Attr("hotness: list(int)")                                       \
      .Attr("table_rows: list(int)")                                    \
      .Attr("names: list(string)")

namespace merlin {

class PoolingAttrs {
 public:
  explicit PoolingAttrs(tensorflow::OpKernelConstruction* ctx);

  // Reads lines, row_splits and weights from the inputs of those names and checks their shapes, the
  // splits' order and the weights' finiteness. `poolings` point into the inputs.
  tensorflow::Status Read(tensorflow::OpKernelContext* ctx, std::vector<Pooling>* poolings) const;

  int features() const { return static_cast<int>(table_of_.size()); }
  int tables() const { return tables_; }
  int64_t table_rows(int table) const { return table_rows_[table]; }
  int table_of(int feature) const { return table_of_[feature]; }
  const std::string& name(int feature) const { return names_[feature]; }
  bool is_max(int feature) const { return combiners_[feature] == Combiner::kMax; }

  // The features of a table, in order.
  const std::vector<int>& features_of(int table) const { return features_of_[table]; }

 private:
  int tables_;
  std::vector<int> table_of_;
  std::vector<Combiner> combiners_;
  std::vector<bool> none_, weighted_;
  std::vector<int64_t> hotness_, table_rows_;
  std::vector<std::string> names_;
  std::vector<std::vector<int>> features_of_;
};

// The poolings of one table's features, side by side.
std::vector<Pooling> PoolingsOf(const PoolingAttrs& attrs, const std::vector<Pooling>& poolings,
                                int table);

}  // namespace merlin
