// Merlin>HashIds: the one row that a hash gives an id. Merlin>HashRows: the several rows that
// hashes give a row, for vectors that are made of several.
#include "core/hash.h"
#include "tensorflow/core/framework/shape_inference.h"
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
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;

class HashIdsOp final : public tensorflow::OpKernel {
 public:
  explicit HashIdsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("salts", &salts_));
    for (int64_t size : sizes_)
      OP_REQUIRES(ctx, size > 0, InvalidArgument("hashes need a size of at least 1, not ", size));
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
      const uint64_t size = sizes_[f], salt = salts_[f];
      for (int64_t i = begin; i < end; ++i) out[f][i] = scaled(xxh64(id[i], salt), size);
    });
  }

 private:
  std::vector<int64_t> sizes_, salts_;
};

REGISTER_OP("Merlin>HashIds")
    .Input("ids: F * int64")
    .Output("rows: F * int64")
    .Attr("F: int >= 1")
    .Attr("sizes: list(int)")
    .Attr("salts: list(int)")
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>HashIds").Device(tensorflow::DEVICE_CPU), HashIdsOp);

class HashRowsOp final : public tensorflow::OpKernel {
 public:
  explicit HashRowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    std::vector<int64_t> hashes, salts;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("salts", &salts));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hashes", &hashes));
    for (size_t f = 0; f < sizes_.size(); ++f) {
      OP_REQUIRES(ctx, sizes_[f] > 0 && hashes[f] > 0,
                  InvalidArgument("hashes need a size and a number of at least 1, not ", sizes_[f],
                                  " and ", hashes[f]));
      seeds_.emplace_back();
      for (int64_t k = 0; k < hashes[f]; ++k) seeds_.back().push_back(seed_of(k, salts[f]));
    }
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList rows;
    OpOutputList lines;
    OP_REQUIRES_OK(ctx, ctx->input_list("rows", &rows));
    OP_REQUIRES_OK(ctx, ctx->output_list("lines", &lines));
    std::vector<int64_t*> out(rows.size());
    for (int f = 0; f < rows.size(); ++f) {
      Tensor* tensor = nullptr;
      const TensorShape shape({rows[f].NumElements() * static_cast<int64_t>(seeds_[f].size())});
      OP_REQUIRES_OK(ctx, lines.allocate(f, shape, &tensor));
      out[f] = tensor->flat<int64_t>().data();
    }
    ForPieces(ctx, rows, [&](int f, int64_t begin, int64_t end) {
      const int64_t* row = rows[f].flat<int64_t>().data();
      const uint64_t size = sizes_[f];
      const std::vector<uint64_t>& seeds = seeds_[f];
      int64_t* line = out[f] + begin * seeds.size();
      for (int64_t i = begin; i < end; ++i)
        for (const uint64_t seed : seeds)
          *line++ = row[i] < 0 ? kNoLine : scaled(xxh64(row[i], seed), size);
    });
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<std::vector<uint64_t>> seeds_;
};

REGISTER_OP("Merlin>HashRows")
    .Input("rows: F * int64")
    .Output("lines: F * int64")
    .Attr("F: int >= 1")
    .Attr("sizes: list(int)")
    .Attr("salts: list(int)")
    .Attr("hashes: list(int)")
    .SetShapeFn([](InferenceContext* c) {
      std::vector<int64_t> hashes;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("hashes", &hashes));
      for (int f = 0; f < c->num_outputs(); ++f) {
        DimensionHandle count;
        MERLIN_RETURN_IF_ERROR(c->Multiply(c->NumElements(c->input(f)), hashes[f], &count));
        c->set_output(f, c->Vector(count));
      }
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>HashRows").Device(tensorflow::DEVICE_CPU), HashRowsOp);

}  // namespace
}  // namespace merlin
