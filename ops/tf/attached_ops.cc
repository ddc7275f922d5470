// Ops on rows that move from id to id: what is attached to them, and how they start anew.
#include <algorithm>

#include "core/drivers.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tf/attached.h"
#include "tf/initial.h"
#include "tf/status.h"
#include "tf/thread_pool.h"
#include "tf/variables.h"

namespace merlin {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;
using tensorflow::errors::InvalidArgument;

class AttachedOp : public tensorflow::OpKernel {
 public:
  explicit AttachedOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("attached", &name_));
  }

 protected:
  Status Find(OpKernelContext* ctx, RefCountPtr<Attached>* attached) const {
    return Attached::Find(ctx, name_, attached);
  }

  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class AttachOp final : public AttachedOp {
 public:
  explicit AttachOp(OpKernelConstruction* ctx) : AttachedOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &fill_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("detach", &detach_));
  }

  void Compute(OpKernelContext* ctx) override {
    RefCountPtr<Attached> attached;
    OP_REQUIRES_OK(ctx, Find(ctx, &attached));
    RefCountPtr<Var> variable;
    OP_REQUIRES_OK(ctx,
                   tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, 0), &variable));
    if (detach_)
      attached->Detach(variable.get());
    else
      attached->Attach(variable.get(), fill_);
  }

 private:
  float fill_;
  bool detach_;
};

REGISTER_OP("Merlin>Attach")
    .Input("variable: resource")
    .Attr("attached: string")
    .Attr("fill: float = 0")
    .Attr("detach: bool = false")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>Attach").Device(tensorflow::DEVICE_CPU), AttachOp);

// Forgets the list; what ops find of its name then is a new one.
class ForgetAttachedOp final : public AttachedOp {
 public:
  explicit ForgetAttachedOp(OpKernelConstruction* ctx) : AttachedOp(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    RefCountPtr<Attached> attached;
    OP_REQUIRES_OK(ctx, Find(ctx, &attached));  // so that deleting it can't fail
    OP_REQUIRES_OK(ctx, ctx->resource_manager()->Delete<Attached>("merlin_embeddings", name()));
  }
};

REGISTER_OP("Merlin>ForgetAttached")
    .Attr("attached: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>ForgetAttached").Device(tensorflow::DEVICE_CPU),
                        ForgetAttachedOp);

class ClaimOp final : public AttachedOp {
 public:
  explicit ClaimOp(OpKernelConstruction* ctx) : AttachedOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("owner", &owner_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("claimed", &claimed_));
  }

  void Compute(OpKernelContext* ctx) override {
    RefCountPtr<Attached> attached;
    OP_REQUIRES_OK(ctx, Find(ctx, &attached));
    attached->Claim(owner_, claimed_);
  }

 private:
  int64_t owner_;
  bool claimed_;
};

REGISTER_OP("Merlin>Claim")
    .Attr("attached: string")
    .Attr("owner: int")
    .Attr("claimed: bool")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>Claim").Device(tensorflow::DEVICE_CPU), ClaimOp);

class ClaimedOp final : public AttachedOp {
 public:
  explicit ClaimedOp(OpKernelConstruction* ctx) : AttachedOp(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    RefCountPtr<Attached> attached;
    OP_REQUIRES_OK(ctx, Find(ctx, &attached));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &out));
    out->scalar<bool>()() = attached->claimed();
  }
};

REGISTER_OP("Merlin>Claimed")
    .Output("claimed: bool")
    .Attr("attached: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);
REGISTER_KERNEL_BUILDER(Name("Merlin>Claimed").Device(tensorflow::DEVICE_CPU), ClaimedOp);

// Hands a gradient on to whoever uses it. Not stateful, although it looks at the list: TensorFlow
// runs stateful ops of a function even where nobody wants what they make.
class RequireClaimedOp final : public AttachedOp {
 public:
  explicit RequireClaimedOp(OpKernelConstruction* ctx) : AttachedOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("message", &message_));
  }
  void Compute(OpKernelContext* ctx) override {
    RefCountPtr<Attached> attached;
    OP_REQUIRES_OK(ctx, Find(ctx, &attached));
    OP_REQUIRES(ctx, attached->claimed(), InvalidArgument(message_));
    ctx->set_output(0, ctx->input(0));
  }

 private:
  std::string message_;
};

REGISTER_OP("Merlin>RequireClaimed")
    .Input("values: dtype")
    .Output("same: dtype")
    .Attr("dtype: type")
    .Attr("attached: string")
    .Attr("message: string")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);
REGISTER_KERNEL_BUILDER(Name("Merlin>RequireClaimed").Device(tensorflow::DEVICE_CPU),
                        RequireClaimedOp);

template <class T>
void Fill(Tensor* slot, const int64_t* rows, int64_t count, double fill) {
  const int64_t width = slot->NumElements() / slot->dim_size(0);
  const T value = static_cast<T>(fill);
  T* data = slot->flat<T>().data();
  for (int64_t i = 0; i < count; ++i) std::fill_n(data + rows[i] * width, width, value);
}

// The rows' vectors, from the initializer as the keys want them, and all that is attached.
class ResetRowsOp final : public AttachedOp {
 public:
  explicit ResetRowsOp(OpKernelConstruction* ctx) : AttachedOp(ctx) {
    OP_REQUIRES_OK(ctx, initial_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& rows = ctx->input(1);
    const Tensor& keys = ctx->input(2);
    OP_REQUIRES(ctx, rows.dims() == 1 && rows.shape() == keys.shape(),
                InvalidArgument(initial_.label, ": rows of shape ", rows.shape().DebugString(),
                                " and keys of shape ", keys.shape().DebugString(),
                                " must be vectors of one length"));
    const int64_t count = rows.NumElements();
    if (count == 0) return;
    RefCountPtr<Attached> attached;
    OP_REQUIRES_OK(ctx, Find(ctx, &attached));
    Variables variables;
    OP_REQUIRES_OK(ctx, variables.Add(ctx, 0, 1, "table"));
    std::vector<Attached::Slot> slots = attached->slots();
    for (Attached::Slot& slot : slots) variables.Add(std::move(slot.variable), "slot");
    OP_REQUIRES_OK(ctx, variables.LockForWriting());

    // All is checked before the first row is written.
    InitializeTask task = initial_.task;
    OP_REQUIRES_OK(ctx, AsTable(*variables.tensor(0), &task.table));
    OP_REQUIRES(ctx,
                task.table.dim == initial_.dim && variables.tensor(0)->dtype() == initial_.dtype,
                InvalidArgument(initial_.label, ": rows of dim ", initial_.dim, " for a table ",
                                variables.tensor(0)->shape().DebugString()));
    const int64_t* row = rows.flat<int64_t>().data();
    for (int64_t i = 0; i < count; ++i)
      OP_REQUIRES(ctx, row[i] >= 0 && row[i] < task.table.rows,
                  InvalidArgument(initial_.label, ": row ", row[i], " is outside the table's ",
                                  task.table.rows, " rows"));
    for (size_t s = 0; s < slots.size(); ++s)
      OP_REQUIRES_OK(ctx, Check(*variables.tensor(s + 1), task.table.rows));

    task.table.rows = count;
    task.keys = keys.flat<int64_t>().data();
    task.into = row;
    initialize(task, ThreadPool(ctx));
    for (size_t s = 0; s < slots.size(); ++s)
      Refill(variables.tensor(s + 1), row, count, slots[s].fill);
  }

 private:
  Status Check(const Tensor& slot, int64_t rows) const {
    if (slot.dims() < 1 || slot.dim_size(0) != rows)
      return InvalidArgument(initial_.label, ": a slot of shape ", slot.shape().DebugString(),
                             " is attached to its ", rows, " rows");
    switch (slot.dtype()) {
      case tensorflow::DT_FLOAT:
      case tensorflow::DT_DOUBLE:
      case tensorflow::DT_BFLOAT16:
      case tensorflow::DT_HALF:
      case tensorflow::DT_UINT8:
      case tensorflow::DT_INT32:
      case tensorflow::DT_INT64:
        return Ok();
      default:
        return InvalidArgument(initial_.label, ": a slot of ",
                               tensorflow::DataTypeString(slot.dtype()), " can't be filled");
    }
  }

  static void Refill(Tensor* slot, const int64_t* rows, int64_t count, double fill) {
    switch (slot->dtype()) {
      case tensorflow::DT_DOUBLE:
        return Fill<double>(slot, rows, count, fill);
      case tensorflow::DT_BFLOAT16:
        return Fill<tensorflow::bfloat16>(slot, rows, count, fill);
      case tensorflow::DT_HALF:
        return Fill<Eigen::half>(slot, rows, count, fill);
      case tensorflow::DT_UINT8:
        return Fill<uint8_t>(slot, rows, count, fill);
      case tensorflow::DT_INT32:
        return Fill<int32_t>(slot, rows, count, fill);
      case tensorflow::DT_INT64:
        return Fill<int64_t>(slot, rows, count, fill);
      default:
        return Fill<float>(slot, rows, count, fill);
    }
  }

  InitialAttrs initial_;
};

REGISTER_OP("Merlin>ResetRows")
    .Input("variable: resource")
    .Input("rows: int64")
    .Input("keys: int64")
    .Attr("attached: string")
    .MERLIN_INITIAL_ATTRS.SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>ResetRows").Device(tensorflow::DEVICE_CPU), ResetRowsOp);

}  // namespace
}  // namespace merlin
