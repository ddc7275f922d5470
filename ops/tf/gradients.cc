#include "tf/gradients.h"

#include <algorithm>

#include "tf/status.h"

namespace merlin {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

Status Gradients::Read(OpKernelContext* ctx, const PoolingAttrs& attrs) {
  std::vector<Pooling> poolings;
  MERLIN_RETURN_IF_ERROR(attrs.Read(ctx, &poolings));
  OpInputList gradients, winners, rows, offsets, sources;
  MERLIN_RETURN_IF_ERROR(ctx->input_list("gradients", &gradients));
  MERLIN_RETURN_IF_ERROR(ctx->input_list("winners", &winners));
  MERLIN_RETURN_IF_ERROR(ctx->input_list("rows", &rows));
  MERLIN_RETURN_IF_ERROR(ctx->input_list("offsets", &offsets));
  MERLIN_RETURN_IF_ERROR(ctx->input_list("sources", &sources));

  std::vector<const int32_t*> winners_of(attrs.features(), nullptr);
  for (int f = 0, next = 0; f < attrs.features(); ++f) {
    if (!attrs.is_max(f)) continue;
    if (next >= winners.size() || winners[next].shape() != gradients[f].shape())
      return InvalidArgument(attrs.name(f), ": winners don't fit the gradient");
    winners_of[f] = winners[next++].flat<int32_t>().data();
  }

  own_.resize(attrs.features());
  features_.resize(attrs.tables());
  for (int t = 0; t < attrs.tables(); ++t) {
    TableGradient table{};
    for (int f : attrs.features_of(t)) table.by_position |= needs_position(poolings[f]);
    for (int f : attrs.features_of(t)) {
      const Tensor& gradient = gradients[f];
      if (gradient.dims() != 2 || gradient.dim_size(0) != poolings[f].bags)
        return InvalidArgument(attrs.name(f), ": a gradient of shape ",
                               gradient.shape().DebugString(), " for ", poolings[f].bags, " bags");
      if (table.dim != 0 && table.dim != gradient.dim_size(1))
        return InvalidArgument(attrs.name(f), ": a gradient of dim ", gradient.dim_size(1),
                               " beside one of dim ", table.dim);
      table.dim = gradient.dim_size(1);
      own_[f] = std::make_unique<GradientOf>(poolings[f], gradient.flat<float>().data(),
                                             winners_of[f], table.by_position);
      features_[t].push_back(own_[f]->view());
    }
    table.features = features_[t].data();
    table.feature_count = features_[t].size();
    table.shift = source_shift(table.feature_count);
    if (offsets[t].NumElements() != rows[t].NumElements() + 1)
      return InvalidArgument(attrs.name(attrs.features_of(t).front()),
                             ": groups don't fit together");
    table.groups = {rows[t].flat<int64_t>().data(), offsets[t].flat<int32_t>().data(),
                    reinterpret_cast<const uint32_t*>(sources[t].flat<int32_t>().data()),
                    rows[t].NumElements()};
    tables_.push_back(table);
  }
  return Ok();
}

}  // namespace merlin
