// Merlin>Values: the gradient of each table's distinct rows, summed. Merlin>WeightGradient: the
// gradient of per-id weights.
#include "tf/gradients.h"
#include "tf/status.h"
#include "tf/thread_pool.h"
#include "tf/variables.h"

namespace merlin {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;

// Stateless, so that TensorFlow drops it when an optimizer takes its inputs instead of its outputs.
class ValuesOp final : public tensorflow::OpKernel {
 public:
  explicit ValuesOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), attrs_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    Gradients gradients;
    OP_REQUIRES_OK(ctx, gradients.Read(ctx, attrs_));
    OpOutputList out;
    OP_REQUIRES_OK(ctx, ctx->output_list("values", &out));
    std::vector<ValuesTask> tasks;
    for (int t = 0; t < attrs_.tables(); ++t) {
      const TableGradient& gradient = gradients.table(t);
      Tensor* tensor = nullptr;
      OP_REQUIRES_OK(ctx,
                     out.allocate(t, TensorShape({gradient.groups.size, gradient.dim}), &tensor));
      tasks.push_back({gradient, tensor->flat<float>().data()});
    }
    values(tasks, ThreadPool(ctx));
  }

 private:
  PoolingAttrs attrs_;
};

REGISTER_OP("Merlin>Values")
    .MERLIN_GRADIENT_INPUTS.Output("values: T * float")
    .MERLIN_POOLING_ATTRS.Attr("X: int >= 0")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      std::vector<int> table_of;
      int features, tables;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("F", &features));
      MERLIN_RETURN_IF_ERROR(c->GetAttr("T", &tables));
      MERLIN_RETURN_IF_ERROR(c->GetAttr("table_of", &table_of));
      for (int t = 0; t < tables; ++t)
        c->set_output(t, c->Matrix(c->UnknownDim(), c->UnknownDim()));
      for (int f = 0; f < features; ++f)
        if (c->RankKnown(c->input(f)) && c->Rank(c->input(f)) == 2)
          c->set_output(table_of[f], c->Matrix(c->UnknownDim(), c->Dim(c->input(f), 1)));
      return Ok();
    });

REGISTER_KERNEL_BUILDER(Name("Merlin>Values").Device(tensorflow::DEVICE_CPU), ValuesOp);

// Reads tables, yet is not marked stateful: it is dropped where nobody asks for the gradient of the
// weights, and TensorFlow still orders it with the writes to its resources.
class WeightGradientOp final : public tensorflow::OpKernel {
 public:
  explicit WeightGradientOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), attrs_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    std::vector<Pooling> poolings;
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx, &poolings));
    OpInputList gradients;
    OpOutputList out;
    OP_REQUIRES_OK(ctx, ctx->input_list("gradients", &gradients));
    OP_REQUIRES_OK(ctx, ctx->output_list("weight_gradients", &out));
    Variables tables;
    OP_REQUIRES_OK(ctx, tables.Add(ctx, 0, attrs_.tables(), "table"));
    OP_REQUIRES_OK(ctx, tables.LockShared());
    std::vector<WeightGradientTask> tasks;
    for (int f = 0; f < attrs_.features(); ++f) {
      if (!poolings[f].weights) continue;
      WeightGradientTask task{};
      OP_REQUIRES_OK(ctx, AsTable(*tables.tensor(attrs_.table_of(f)), &task.table));
      OP_REQUIRES(ctx, gradients[f].shape() == TensorShape({poolings[f].bags, task.table.dim}),
                  InvalidArgument(attrs_.name(f), ": a gradient of shape ",
                                  gradients[f].shape().DebugString(), " for ", poolings[f].bags,
                                  " bags of dim ", task.table.dim));
      Tensor* tensor = nullptr;
      OP_REQUIRES_OK(ctx, out.allocate(static_cast<int>(tasks.size()),
                                       TensorShape({poolings[f].lookups}), &tensor));
      task.pooling = poolings[f];
      task.gradient = gradients[f].flat<float>().data();
      task.weight_gradients = tensor->flat<float>().data();
      tasks.push_back(task);
    }
    weight_gradients(tasks, ThreadPool(ctx));
  }

 private:
  PoolingAttrs attrs_;
};

REGISTER_OP("Merlin>WeightGradient")
    .Input("tables: T * resource")
    .Input("gradients: F * float")
    .Input("lines: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: W * float")
    .Output("weight_gradients: W * float")
    .MERLIN_POOLING_ATTRS.SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      for (int w = 0; w < c->num_outputs(); ++w)
        c->set_output(w, c->input(c->num_inputs() - c->num_outputs() + w));
      return Ok();
    });

REGISTER_KERNEL_BUILDER(Name("Merlin>WeightGradient").Device(tensorflow::DEVICE_CPU),
                        WeightGradientOp);

}  // namespace
}  // namespace merlin
