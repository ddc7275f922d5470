// Ops of the pure id maps, and row_splits from sorted row numbers.
#include <atomic>
#include <vector>

#include "tensorflow/core/framework/shape_inference.h"
#include "tf/messages.h"
#include "tf/pieces.h"
#include "tf/status.h"

namespace merlin {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;

tensorflow::Status SameShapes(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
  return Ok();
}

// The top bit of `id | (size - 1 - id)` is set for ids outside [0, size) alone; this form needs no
// comparison, and so every instruction set does several at once.
bool AllWithin(const int64_t* ids, int64_t begin, int64_t end, uint64_t size) {
  uint64_t bits = 0;
  for (int64_t i = begin; i < end; ++i) {
    const uint64_t id = static_cast<uint64_t>(ids[i]);
    bits |= id | (size - 1 - id);
  }
  return bits >> 63 == 0;
}

// Ids that are rows already. Where all are in range the tensor goes through uncopied.
class CheckRangeOp final : public tensorflow::OpKernel {
 public:
  explicit CheckRangeOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("policies", &policies_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("names", &names_));
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList ids;
    OpOutputList rows;
    OP_REQUIRES_OK(ctx, ctx->input_list("ids", &ids));
    OP_REQUIRES_OK(ctx, ctx->output_list("rows", &rows));
    std::vector<std::atomic<bool>> outside(ids.size());
    ForPieces(ctx, ids, [&](int f, int64_t begin, int64_t end) {
      if (!AllWithin(ids[f].flat<int64_t>().data(), begin, end, sizes_[f])) outside[f] = true;
    });
    for (int f = 0; f < ids.size(); ++f) {
      if (!outside[f]) {
        rows.set(f, ids[f]);
        continue;
      }
      const auto id = ids[f].flat<int64_t>();
      const int64_t size = sizes_[f];
      if (policies_[f] == "error") {
        int64_t i = 0;
        while (id(i) >= 0 && id(i) < size) ++i;
        ctx->SetStatus(InvalidArgument(names_[f], ": id ", id(i), " at position ", i, kOutside,
                                       size, kWayOut));
        return;
      }
      const bool clip = policies_[f] == "clip";
      Tensor* out = nullptr;
      OP_REQUIRES_OK(ctx, rows.allocate(f, ids[f].shape(), &out));
      auto row = out->flat<int64_t>();
      for (int64_t i = 0; i < id.size(); ++i)
        row(i) = id(i) >= 0 && id(i) < size ? id(i) : clip ? (id(i) < 0 ? 0 : size - 1) : -1;
    }
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<std::string> policies_, names_;
};

REGISTER_OP("Merlin>CheckRange")
    .Input("ids: F * int64")
    .Output("rows: F * int64")
    .Attr("F: int >= 1")
    .Attr("sizes: list(int)")
    .Attr("policies: list({'error', 'zero', 'clip'})")
    .Attr("names: list(string)")
    .SetShapeFn(SameShapes);
REGISTER_KERNEL_BUILDER(Name("Merlin>CheckRange").Device(tensorflow::DEVICE_CPU), CheckRangeOp);

// ids mod size, in [0, size) for every int64.
class ModuloOp final : public tensorflow::OpKernel {
 public:
  explicit ModuloOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    for (int64_t size : sizes_)
      OP_REQUIRES(ctx, size > 0, InvalidArgument("modulo needs a size of at least 1, not ", size));
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList ids;
    OpOutputList rows;
    OP_REQUIRES_OK(ctx, ctx->input_list("ids", &ids));
    OP_REQUIRES_OK(ctx, ctx->output_list("rows", &rows));
    std::vector<int64_t*> out(ids.size());
    for (int f = 0; f < ids.size(); ++f) {
      Tensor* tensor = nullptr;
      OP_REQUIRES_OK(ctx, rows.allocate(f, ids[f].shape(), &tensor));
      out[f] = tensor->flat<int64_t>().data();
    }
    ForPieces(ctx, ids, [&](int f, int64_t begin, int64_t end) {
      const int64_t* id = ids[f].flat<int64_t>().data();
      const int64_t size = sizes_[f];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t rest = id[i] % size;
        out[f][i] = rest < 0 ? rest + size : rest;
      }
    });
  }

 private:
  std::vector<int64_t> sizes_;
};

REGISTER_OP("Merlin>Modulo")
    .Input("ids: F * int64")
    .Output("rows: F * int64")
    .Attr("F: int >= 1")
    .Attr("sizes: list(int)")
    .SetShapeFn(SameShapes);
REGISTER_KERNEL_BUILDER(Name("Merlin>Modulo").Device(tensorflow::DEVICE_CPU), ModuloOp);

// Of a batch; beyond it a dense_shape is a mistake and not a size.
constexpr int64_t kMostRows = int64_t{1} << 40;

class RowSplitsOp final : public tensorflow::OpKernel {
 public:
  explicit RowSplitsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("label", &name_));
  }

  void Compute(OpKernelContext* ctx) override {
    const auto row = ctx->input(0).flat<int64_t>();
    const int64_t rows = ctx->input(1).scalar<int64_t>()();
    OP_REQUIRES(ctx, rows >= 0 && rows <= kMostRows,
                InvalidArgument(name_, ": a batch of ", rows, " rows; check dense_shape"));
    for (int64_t i = 0; i < row.size(); ++i)
      OP_REQUIRES(ctx, row(i) >= (i == 0 ? 0 : row(i - 1)) && row(i) < rows,
                  InvalidArgument(name_, ": entry ", i, " is of row ", row(i), " after row ",
                                  i == 0 ? 0 : row(i - 1), ", of ", rows,
                                  " rows; rows must ascend (tf.sparse.reorder does it)"));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({rows + 1}), &out));
    auto splits = out->flat<int64_t>();
    int64_t i = 0;
    for (int64_t r = 0; r < rows; ++r) {
      splits(r) = i;
      while (i < row.size() && row(i) == r) ++i;
    }
    splits(rows) = i;
  }

 private:
  std::string name_;
};

REGISTER_OP("Merlin>RowSplits")
    .Input("row_ids: int64")
    .Input("rows: int64")
    .Output("row_splits: int64")
    .Attr("label: string")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>RowSplits").Device(tensorflow::DEVICE_CPU), RowSplitsOp);

}  // namespace
}  // namespace merlin
