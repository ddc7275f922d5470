#include "tf/poolings.h"

#include "core/drivers.h"
#include "tf/status.h"

namespace merlin {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

PoolingAttrs::PoolingAttrs(OpKernelConstruction* ctx) {
  std::vector<std::string> combiners;
  int features = 0;
  OP_REQUIRES_OK(ctx, ctx->GetAttr("F", &features));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("T", &tables_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("table_of", &table_of_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("combiners", &combiners));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("weighted", &weighted_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("hotness", &hotness_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("table_rows", &table_rows_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("names", &names_));
  const size_t count = features;
  OP_REQUIRES(ctx,
              table_of_.size() == count && combiners.size() == count && weighted_.size() == count &&
                  hotness_.size() == count && names_.size() == count &&
                  table_rows_.size() == static_cast<size_t>(tables_),
              InvalidArgument("attributes of ", count, " features need ", count, " entries each"));
  features_of_.resize(tables_);
  for (int f = 0; f < features; ++f) {
    OP_REQUIRES(ctx, table_of_[f] >= 0 && table_of_[f] < tables_ && hotness_[f] >= 0,
                InvalidArgument(names_[f], ": table_of or hotness out of range"));
    features_of_[table_of_[f]].push_back(f);
    const std::string& combiner = combiners[f];
    none_.push_back(combiner == "none");
    combiners_.push_back(combiner == "mean"    ? Combiner::kMean
                         : combiner == "sqrtn" ? Combiner::kSqrtN
                         : combiner == "max"   ? Combiner::kMax
                                               : Combiner::kSum);
    OP_REQUIRES(ctx, !(combiner == "max" && weighted_[f]),
                InvalidArgument(names_[f], ": a maximum takes no weights; use sum, mean or sqrtn"));
  }
}

Status PoolingAttrs::Read(OpKernelContext* ctx, std::vector<Pooling>* poolings) const {
  OpInputList lines, row_splits, weights;
  MERLIN_RETURN_IF_ERROR(ctx->input_list("lines", &lines));
  MERLIN_RETURN_IF_ERROR(ctx->input_list("row_splits", &row_splits));
  MERLIN_RETURN_IF_ERROR(ctx->input_list("weights", &weights));
  poolings->clear();
  int next_weights = 0;
  for (int f = 0; f < features(); ++f) {
    const Tensor& line = lines[f];
    const Tensor& splits = row_splits[f];
    if (line.dims() != 1 || splits.dims() != 1)
      return InvalidArgument(names_[f], ": lines and row_splits must be vectors, not of shapes ",
                             line.shape().DebugString(), " and ", splits.shape().DebugString());
    Pooling p{};
    p.lines = line.flat<int64_t>().data();
    p.lookups = line.NumElements();
    p.combiner = combiners_[f];
    p.hotness = none_[f] ? 1 : hotness_[f];
    if (p.hotness > 0) {
      p.bags = p.lookups / p.hotness;
    } else {
      if (splits.NumElements() < 1)
        return InvalidArgument(names_[f], ": row_splits is empty; it has one entry more than bags");
      p.row_splits = splits.flat<int64_t>().data();
      p.bags = splits.NumElements() - 1;
    }
    if (weighted_[f]) {
      if (next_weights >= weights.size())
        return InvalidArgument(names_[f], ": weights are missing");
      const Tensor& weight = weights[next_weights++];
      if (weight.NumElements() != p.lookups)
        return InvalidArgument(names_[f], ": ", weight.NumElements(), " weights for ", p.lookups,
                               " ids; give one for each id");
      p.weights = weight.flat<float>().data();
    }
    const int64_t split = bad_split(p);
    if (split >= 0 && p.row_splits)
      return InvalidArgument(names_[f], ": row_splits[", split, "] = ", p.row_splits[split],
                             "; they must begin at 0, never fall, and end at the number of ids, ",
                             p.lookups);
    if (split >= 0)
      return InvalidArgument(names_[f], ": ", p.lookups, " ids are no multiple of ", p.hotness);
    poolings->push_back(p);
  }
  return Ok();
}

std::vector<Pooling> PoolingsOf(const PoolingAttrs& attrs, const std::vector<Pooling>& poolings,
                                int table) {
  std::vector<Pooling> own;
  for (int f : attrs.features_of(table)) own.push_back(poolings[f]);
  return own;
}

}  // namespace merlin
