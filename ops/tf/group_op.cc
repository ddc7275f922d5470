// Merlin>Group: the lookups of each table by distinct row. Stateless.
#include <stdexcept>

#include "core/grouping.h"
#include "tf/poolings.h"
#include "tf/status.h"
#include "tf/thread_pool.h"

namespace merlin {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Status;
using tensorflow::Tensor;

class GroupOp final : public tensorflow::OpKernel {
 public:
  explicit GroupOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), attrs_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    std::vector<Pooling> poolings;
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx, &poolings));
    OpOutputList rows, offsets, sources;
    OP_REQUIRES_OK(ctx, ctx->output_list("rows", &rows));
    OP_REQUIRES_OK(ctx, ctx->output_list("offsets", &offsets));
    OP_REQUIRES_OK(ctx, ctx->output_list("sources", &sources));

    const int count = attrs_.tables();
    std::vector<std::vector<Pooling>> own(count);
    std::vector<Grouping> groupings;
    groupings.reserve(count);
    int64_t largest = 0, all = 0;
    for (int t = 0; t < count; ++t) {
      own[t] = PoolingsOf(attrs_, poolings, t);
      int64_t lookups = 0;
      for (const Pooling& p : own[t]) lookups += p.lookups;
      largest = std::max(largest, lookups);
      all += lookups;
      try {
        groupings.emplace_back(own[t].data(), own[t].size(), attrs_.table_rows(t));
      } catch (const std::length_error& error) {
        ctx->SetStatus(tensorflow::errors::InvalidArgument(
            attrs_.name(attrs_.features_of(t).front()), ": ", error.what(),
            "; use a smaller batch or split the table"));
        return;
      }
    }

    // A table for each thread where there are enough of about one size, else all threads on each.
    const ThreadPool pool(ctx);
    const bool by_table = largest * pool.threads() <= all + all / 4;
    const Serial serial;
    const auto for_each_table = [&](const std::function<void(int64_t, const Parallel&)>& work) {
      if (by_table) return pool.run(count, [&](int64_t t) { work(t, serial); });
      for (int64_t t = 0; t < count; ++t) work(t, pool);
    };
    for_each_table([&](int64_t t, const Parallel& parallel) { groupings[t].sort(parallel); });

    std::vector<Tensor*> out(3 * count);
    for (int t = 0; t < count; ++t) {
      const int64_t u = groupings[t].size(), m = groupings[t].lookups();
      OP_REQUIRES_OK(ctx, rows.allocate(t, {u}, &out[3 * t]));
      OP_REQUIRES_OK(ctx, offsets.allocate(t, {u + 1}, &out[3 * t + 1]));
      OP_REQUIRES_OK(ctx, sources.allocate(t, {m}, &out[3 * t + 2]));
    }
    for_each_table([&](int64_t t, const Parallel& parallel) {
      groupings[t].emit(parallel, out[3 * t]->flat<int64_t>().data(),
                        out[3 * t + 1]->flat<int32_t>().data(),
                        reinterpret_cast<uint32_t*>(out[3 * t + 2]->flat<int32_t>().data()));
    });
  }

 private:
  PoolingAttrs attrs_;
};

REGISTER_OP("Merlin>Group")
    .Input("lines: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: W * float")
    .Output("rows: T * int64")
    .Output("offsets: T * int32")
    .Output("sources: T * int32")
    .MERLIN_POOLING_ATTRS.SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Vector(c->UnknownDim()));
      return Ok();
    });

REGISTER_KERNEL_BUILDER(Name("Merlin>Group").Device(tensorflow::DEVICE_CPU), GroupOp);

}  // namespace
}  // namespace merlin
