// Ops on whole tables and single rows: initial values, moves to huge pages, writes in place.
#include <cstring>
#include <numeric>
#include <vector>

#include "core/drivers.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/huge_pages.h"
#include "tf/initial.h"
#include "tf/status.h"
#include "tf/thread_pool.h"
#include "tf/variables.h"

namespace merlin {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;

// Shared by both ops below: what a row's values are a function of.
class InitialOp : public tensorflow::OpKernel {
 public:
  explicit InitialOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, initial_.Read(ctx));
  }

 protected:
  // The first `zeros` rows stay 0, and the values begin behind them.
  void Fill(OpKernelContext* ctx, int64_t rows, const int64_t* keys, int64_t zeros) {
    Tensor values;
    OP_REQUIRES_OK(ctx, AllocateTable(initial_.dtype, rows, initial_.dim, initial_.label, &values));
    InitializeTask task = initial_.task;
    OP_REQUIRES_OK(ctx, AsTable(values, &task.table));
    task.keys = keys;
    std::vector<int64_t> numbers(zeros > 0 ? rows - zeros : 0), places(numbers.size());
    if (zeros > 0) {
      std::iota(numbers.begin(), numbers.end(), 0);
      std::iota(places.begin(), places.end(), zeros);
      task.table.rows = rows - zeros;
      task.keys = numbers.data();
      task.into = places.data();
    }
    // Fresh memory is zeros already, and stays free until it is touched.
    const bool all_zeros = task.distribution == Distribution::kConstant && task.first == 0;
    if (!all_zeros && task.table.rows > 0) initialize(task, ThreadPool(ctx));
    ctx->set_output(0, values);
  }

 private:
  InitialAttrs initial_;
};

class InitialTableOp final : public InitialOp {
 public:
  explicit InitialTableOp(OpKernelConstruction* ctx) : InitialOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rows", &rows_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("zeros", &zeros_));
    OP_REQUIRES(ctx, zeros_ <= rows_,
                InvalidArgument(zeros_, " rows of zeros in a table of ", rows_));
  }
  void Compute(OpKernelContext* ctx) override { Fill(ctx, rows_, nullptr, zeros_); }

 private:
  int64_t rows_, zeros_;
};

class InitialRowsOp final : public InitialOp {
 public:
  explicit InitialRowsOp(OpKernelConstruction* ctx) : InitialOp(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    Fill(ctx, ctx->input(0).NumElements(), ctx->input(0).flat<int64_t>().data(), 0);
  }
};

// Stateful, or a table would be folded into the graph as a constant.
REGISTER_OP("Merlin>InitialTable")
    .Output("values: dtype")
    .Attr("rows: int >= 0")
    .Attr("zeros: int >= 0 = 0")
    .MERLIN_INITIAL_ATTRS.SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int64_t rows, dim;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("rows", &rows));
      MERLIN_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      c->set_output(0, c->Matrix(rows, dim));
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>InitialTable").Device(tensorflow::DEVICE_CPU), InitialTableOp);

REGISTER_OP("Merlin>InitialRows")
    .Input("keys: int64")
    .Output("values: dtype")
    .MERLIN_INITIAL_ATTRS.SetShapeFn([](InferenceContext* c) {
      int64_t dim;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      c->set_output(0, c->Matrix(c->NumElements(c->input(0)), dim));
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>InitialRows").Device(tensorflow::DEVICE_CPU), InitialRowsOp);

class ToHugePagesOp final : public tensorflow::OpKernel {
 public:
  explicit ToHugePagesOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    const Tensor& from = ctx->input(0);
    Tensor to;
    OP_REQUIRES_OK(ctx, AllocateTable(from.dtype(), from.shape(), &to));
    if (from.TotalBytes() > 0) std::memcpy(to.data(), from.data(), from.TotalBytes());
    ctx->set_output(0, to);
  }
};

REGISTER_OP("Merlin>ToHugePages")
    .Input("values: dtype")
    .Output("copy: dtype")
    .Attr("dtype: {float, bfloat16, half, uint8, int32, int64}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);
REGISTER_KERNEL_BUILDER(Name("Merlin>ToHugePages").Device(tensorflow::DEVICE_CPU), ToHugePagesOp);

class WriteRowsOp final : public tensorflow::OpKernel {
 public:
  explicit WriteRowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("label", &name_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& rows = ctx->input(1);
    const Tensor& values = ctx->input(2);
    Variables variables;
    OP_REQUIRES_OK(ctx, variables.Add(ctx, 0, 1, "table"));
    OP_REQUIRES_OK(ctx, variables.LockForWriting());
    Tensor* table = variables.tensor(0);
    OP_REQUIRES(ctx, table->dims() >= 1 && table->dtype() == values.dtype(),
                InvalidArgument(name_, ": can't write ", tensorflow::DataTypeString(values.dtype()),
                                " into ", tensorflow::DataTypeString(table->dtype())));
    TensorShape expected = table->shape();
    expected.set_dim(0, rows.NumElements());
    OP_REQUIRES(ctx, rows.dims() == 1 && values.shape() == expected,
                InvalidArgument(name_, ": values of shape ", values.shape().DebugString(), " for ",
                                rows.NumElements(), " rows of a table of shape ",
                                table->shape().DebugString()));
    const auto row = rows.flat<int64_t>();
    for (int64_t i = 0; i < row.size(); ++i)
      OP_REQUIRES(ctx, row(i) >= 0 && row(i) < table->dim_size(0),
                  InvalidArgument(name_, ": row ", row(i), " is outside the table's ",
                                  table->dim_size(0), " rows"));
    if (row.size() == 0) return;
    const size_t bytes = values.TotalBytes() / row.size();
    char* to = static_cast<char*>(table->data());
    const char* from = static_cast<const char*>(values.data());
    for (int64_t i = 0; i < row.size(); ++i)
      std::memcpy(to + row(i) * bytes, from + i * bytes, bytes);
  }

 private:
  std::string name_;
};

REGISTER_OP("Merlin>WriteRows")
    .Input("table: resource")
    .Input("rows: int64")
    .Input("values: dtype")
    .Attr("dtype: {float, bfloat16, half, uint8, uint16, int32, int64}")
    .Attr("label: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>WriteRows").Device(tensorflow::DEVICE_CPU), WriteRowsOp);

// A number that the variable's buffer alone ever has. A buffer that came from elsewhere (`assign`)
// has none: its value then moves to one that does.
class BufferSerialOp final : public tensorflow::OpKernel {
 public:
  explicit BufferSerialOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    Variables variables;
    OP_REQUIRES_OK(ctx, variables.Add(ctx, 0, 1, "table"));
    OP_REQUIRES_OK(ctx, variables.LockForWriting());
    if (SerialOf(*variables.tensor(0)) == 0)
      OP_REQUIRES_OK(ctx, MoveToOwnBuffer(variables.variable(0)));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &out));
    out->scalar<int64_t>()() = SerialOf(*variables.tensor(0));
  }
};

REGISTER_OP("Merlin>BufferSerial")
    .Input("table: resource")
    .Output("serial: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);
REGISTER_KERNEL_BUILDER(Name("Merlin>BufferSerial").Device(tensorflow::DEVICE_CPU), BufferSerialOp);

}  // namespace
}  // namespace merlin
