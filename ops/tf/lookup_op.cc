// Merlin>Lookup: F features' bags pooled from T tables in one call.
#include "core/drivers.h"
#include "tf/messages.h"
#include "tf/poolings.h"
#include "tf/status.h"
#include "tf/thread_pool.h"
#include "tf/variables.h"

namespace merlin {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;

// [B, D] of each feature; for combiner none B is its number of lookups.
Status LookupShape(InferenceContext* c) {
  int features, tables;
  std::vector<int> table_of;
  std::vector<int64_t> hotness, dims;
  std::vector<std::string> combiners;
  MERLIN_RETURN_IF_ERROR(c->GetAttr("F", &features));
  MERLIN_RETURN_IF_ERROR(c->GetAttr("T", &tables));
  MERLIN_RETURN_IF_ERROR(c->GetAttr("table_of", &table_of));
  MERLIN_RETURN_IF_ERROR(c->GetAttr("hotness", &hotness));
  MERLIN_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
  MERLIN_RETURN_IF_ERROR(c->GetAttr("combiners", &combiners));
  int winners = features;
  for (int f = 0; f < features; ++f) {
    const auto lines = c->input(tables + f), splits = c->input(tables + features + f);
    DimensionHandle bags = c->UnknownDim();
    if (combiners[f] == "none" || hotness[f] > 0) {
      if (c->RankKnown(lines)) {
        const int64_t every = combiners[f] == "none" ? 1 : hotness[f];
        MERLIN_RETURN_IF_ERROR(c->Divide(c->Dim(lines, 0), every, true, &bags));
      }
    } else if (c->RankKnown(splits)) {
      MERLIN_RETURN_IF_ERROR(c->Subtract(c->Dim(splits, 0), 1, &bags));
    }
    const auto shape = c->Matrix(bags, dims[table_of[f]]);
    c->set_output(f, shape);
    if (combiners[f] == "max") c->set_output(winners++, shape);
  }
  return Ok();
}

class LookupOp final : public tensorflow::OpKernel {
 public:
  explicit LookupOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), attrs_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("strict", &strict_));
    OP_REQUIRES(ctx, static_cast<int>(strict_.size()) == attrs_.features(),
                InvalidArgument("strict needs an entry for each feature"));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Pooling> poolings;
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx, &poolings));
    OpOutputList pooled, winners;
    OP_REQUIRES_OK(ctx, ctx->output_list("pooled", &pooled));
    OP_REQUIRES_OK(ctx, ctx->output_list("winners", &winners));

    Variables tables;
    OP_REQUIRES_OK(ctx, tables.Add(ctx, 0, attrs_.tables(), "table"));
    OP_REQUIRES_OK(ctx, tables.LockShared());
    std::vector<LookupTask> tasks;
    tasks.reserve(attrs_.features());
    int next_winners = 0;
    for (int f = 0; f < attrs_.features(); ++f) {
      LookupTask task{};
      OP_REQUIRES_OK(ctx, AsTable(*tables.tensor(attrs_.table_of(f)), &task.table));
      task.pooling = poolings[f];
      task.pooling.strict = strict_[f];
      const TensorShape shape({poolings[f].bags, task.table.dim});
      Tensor* out = nullptr;
      OP_REQUIRES_OK(ctx, pooled.allocate(f, shape, &out));
      task.pooled = out->flat<float>().data();
      if (attrs_.is_max(f)) {
        OP_REQUIRES_OK(ctx, winners.allocate(next_winners++, shape, &out));
        task.winners = out->flat<int32_t>().data();
      }
      const int64_t weight = bad_weight(poolings[f]);
      OP_REQUIRES(ctx, weight < 0,
                  InvalidArgument(attrs_.name(f), ": weight ", weight, " is ",
                                  poolings[f].weights[std::max<int64_t>(weight, 0)],
                                  "; weights must be finite"));
      tasks.push_back(task);
    }
    const BadLine bad = lookup(tasks, ThreadPool(ctx));
    if (bad.task >= 0) ctx->SetStatus(Refusal(tasks[bad.task], bad));
  }

 private:
  Status Refusal(const LookupTask& task, const BadLine& bad) const {
    const int64_t line = task.pooling.lines[bad.position], rows = task.table.rows;
    if (task.pooling.strict)
      return InvalidArgument(attrs_.name(bad.task), ": id ", line, " at position ", bad.position,
                             kOutside, rows, kWayOut);
    return InvalidArgument(attrs_.name(bad.task), ": row ", line, " of lookup ", bad.position,
                           " is outside the table's ", rows, " rows");
  }

  PoolingAttrs attrs_;
  std::vector<bool> strict_;
};

REGISTER_OP("Merlin>Lookup")
    .Input("tables: T * resource")
    .Input("lines: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: W * float")
    .Output("pooled: F * float")
    .Output("winners: X * int32")
    .MERLIN_POOLING_ATTRS.Attr("X: int >= 0")
    .Attr("dims: list(int)")
    .Attr("strict: list(bool)")
    // Of each table, for the gradient: the list of what is attached to its rows; "": rows stay.
    .Attr("guards: list(string) = []")
    .SetIsStateful()
    .SetShapeFn(LookupShape);

REGISTER_KERNEL_BUILDER(Name("Merlin>Lookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace merlin
