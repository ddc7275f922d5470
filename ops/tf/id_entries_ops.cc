// Ops on single ids and whole states of stateful id maps, outside of steps.
#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/huge_pages.h"
#include "tf/id_state.h"
#include "tf/status.h"

namespace merlin {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;

constexpr int64_t kScores = int64_t{1} << 32;  // scores are below

class IdOp : public tensorflow::OpKernel {
 public:
  explicit IdOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
  }

 protected:
  const IdStateAttrs& attrs() const { return attrs_; }

  Status CheckScores(const Tensor& scores, int64_t size) const {
    if (scores.NumElements() != size)
      return InvalidArgument(attrs_.label, ": ", scores.NumElements(), " scores for ", size,
                             " ids; there must be one an id");
    const auto score = scores.flat<int64_t>();
    for (int64_t i = 0; i < size; ++i)
      if (score(i) < 0 || score(i) >= kScores)
        return InvalidArgument(attrs_.label, ": score ", score(i), " at position ", i,
                               "; scores are in [0, 2**32)");
    return Ok();
  }

  static Status Output(OpKernelContext* ctx, const IdEntries& entries) {
    MERLIN_RETURN_IF_ERROR(OutputVector(ctx, "slots", entries.slots));
    MERLIN_RETURN_IF_ERROR(OutputVector(ctx, "ids", entries.ids));
    MERLIN_RETURN_IF_ERROR(OutputVector(ctx, "rows", entries.rows));
    return OutputVector(ctx, "scores", entries.scores);
  }

 private:
  IdStateAttrs attrs_;
};

#define MERLIN_ID_ENTRIES \
  Output("slots: int64").Output("ids: int64").Output("rows: int64").Output("scores: int64")

Status Vectors(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Vector(c->UnknownDim()));
  return Ok();
}

class UpsertIdsOp final : public IdOp {
 public:
  explicit UpsertIdsOp(OpKernelConstruction* ctx) : IdOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadIdPolicy(ctx, &policy_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("G", &scored_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor* ids = nullptr;
    tensorflow::OpInputList scores;
    OP_REQUIRES_OK(ctx, ctx->input("ids", &ids));
    OP_REQUIRES_OK(ctx, ctx->input_list("scores", &scores));
    const int64_t* id = ids->flat<int64_t>().data();
    const int64_t size = ids->NumElements();
    if (scored_ > 0) OP_REQUIRES_OK(ctx, CheckScores(scores[0], size));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("rows", ids->shape(), &rows));
    IdChanges changes;
    {
      IdState state;
      OP_REQUIRES_OK(ctx, state.Open(ctx, attrs(), /*writing=*/true));
      const IdTrouble trouble = upsert(state.table(), policy_, id,
                                       scored_ > 0 ? scores[0].flat<int64_t>().data() : nullptr,
                                       size, rows->flat<int64_t>().data(), &changes);
      if (trouble.kind != IdTrouble::kNone) return ctx->SetStatus(IdsFull(attrs().label, trouble));
    }
    OP_REQUIRES_OK(ctx, OutputChanges(ctx, changes));
  }

 private:
  IdPolicy policy_;
  int scored_;
};

REGISTER_OP("Merlin>UpsertIds")
    .Input("state: S * resource")
    .Input("ids: int64")
    .Input("scores: G * int64")
    .Output("rows: int64")
    .MERLIN_ID_CHANGES.Attr("G: int >= 0")
    .MERLIN_ID_STATE_ATTRS.MERLIN_ID_POLICY_ATTRS.SetIsStateful()
    .SetShapeFn(Vectors);
REGISTER_KERNEL_BUILDER(Name("Merlin>UpsertIds").Device(tensorflow::DEVICE_CPU), UpsertIdsOp);

class EraseIdsOp final : public IdOp {
 public:
  explicit EraseIdsOp(OpKernelConstruction* ctx) : IdOp(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor* ids = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("ids", &ids));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("rows", ids->shape(), &rows));
    IdState state;
    OP_REQUIRES_OK(ctx, state.Open(ctx, attrs(), /*writing=*/true));
    erase(state.table(), ids->flat<int64_t>().data(), ids->NumElements(),
          rows->flat<int64_t>().data());
  }
};

REGISTER_OP("Merlin>EraseIds")
    .Input("state: S * resource")
    .Input("ids: int64")
    .Output("rows: int64")
    .MERLIN_ID_STATE_ATTRS.SetIsStateful()
    .SetShapeFn(Vectors);
REGISTER_KERNEL_BUILDER(Name("Merlin>EraseIds").Device(tensorflow::DEVICE_CPU), EraseIdsOp);

// mode   score: ids below `value` go; age, count: those below the score of an id that was last seen
//        `value` steps ago, or `value` times
class RestrictIdsOp final : public IdOp {
 public:
  explicit RestrictIdsOp(OpKernelConstruction* ctx) : IdOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadIdPolicy(ctx, &policy_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor *value = nullptr, *keep = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("value", &value));
    OP_REQUIRES_OK(ctx, ctx->input("keep", &keep));
    const int64_t number = value->scalar<int64_t>()(), most = keep->scalar<int64_t>()();
    OP_REQUIRES(ctx, number >= 0 && most >= 0,
                InvalidArgument(attrs().label, ": restrict by ", number, " to ", most,
                                " ids; neither can be negative"));
    IdEntries entries;
    {
      IdState state;
      OP_REQUIRES_OK(ctx, state.Open(ctx, attrs(), /*writing=*/true));
      const IdTable& table = state.table();
      const int64_t clock = table.meters[kClock];
      const int64_t lowest = mode_ == "score" ? number
                             : mode_ == "age"
                                 ? score_of(table, policy_, std::max<int64_t>(clock - number, 0), 1)
                                 : score_of(table, policy_, clock, number);
      entries = restrict_entries(table, policy_, lowest, most);
    }
    OP_REQUIRES_OK(ctx, Output(ctx, entries));
  }

 private:
  IdPolicy policy_;
  std::string mode_;
};

REGISTER_OP("Merlin>RestrictIds")
    .Input("state: S * resource")
    .Input("value: int64")
    .Input("keep: int64")
    .MERLIN_ID_ENTRIES.Attr("mode: {'score', 'age', 'count'}")
    .MERLIN_ID_STATE_ATTRS.MERLIN_ID_POLICY_ATTRS.SetIsStateful()
    .SetShapeFn(Vectors);
REGISTER_KERNEL_BUILDER(Name("Merlin>RestrictIds").Device(tensorflow::DEVICE_CPU), RestrictIdsOp);

// The ids of one virtual shard, or of all (-1).
class IdEntriesOp final : public IdOp {
 public:
  explicit IdEntriesOp(OpKernelConstruction* ctx) : IdOp(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor* shard = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("shard", &shard));
    const int64_t number = shard->scalar<int64_t>()();
    OP_REQUIRES(ctx, number >= -1 && number < attrs().shape.shards,
                InvalidArgument(attrs().label, ": shard ", number, " of ", attrs().shape.shards));
    IdEntries found;
    {
      IdState state;
      OP_REQUIRES_OK(ctx, state.Open(ctx, attrs(), /*writing=*/false));
      found = entries(state.table(), number);
    }
    OP_REQUIRES_OK(ctx, Output(ctx, found));
  }
};

REGISTER_OP("Merlin>IdEntries")
    .Input("state: S * resource")
    .Input("shard: int64")
    .MERLIN_ID_ENTRIES.MERLIN_ID_STATE_ATTRS.SetIsStateful()
    .SetShapeFn(Vectors);
REGISTER_KERNEL_BUILDER(Name("Merlin>IdEntries").Device(tensorflow::DEVICE_CPU), IdEntriesOp);

// Puts ids back where IdEntries found them; the state is empty but for its meters.
class PlaceIdsOp final : public IdOp {
 public:
  explicit PlaceIdsOp(OpKernelConstruction* ctx) : IdOp(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor *slots = nullptr, *ids = nullptr, *rows = nullptr, *scores = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("slots", &slots));
    OP_REQUIRES_OK(ctx, ctx->input("ids", &ids));
    OP_REQUIRES_OK(ctx, ctx->input("rows", &rows));
    OP_REQUIRES_OK(ctx, ctx->input("scores", &scores));
    const int64_t size = ids->NumElements();
    OP_REQUIRES(ctx, slots->NumElements() == size && rows->NumElements() == size,
                InvalidArgument(attrs().label, ": ", slots->NumElements(), " slots and ",
                                rows->NumElements(), " rows of ", size, " ids"));
    OP_REQUIRES_OK(ctx, CheckScores(*scores, size));
    const auto as_vector = [](const Tensor& tensor) {
      const int64_t* values = tensor.flat<int64_t>().data();
      return std::vector<int64_t>(values, values + tensor.NumElements());
    };
    const IdEntries entries{as_vector(*slots), as_vector(*ids), as_vector(*rows),
                            as_vector(*scores)};
    IdState state;
    OP_REQUIRES_OK(ctx, state.Open(ctx, attrs(), /*writing=*/true));
    OP_REQUIRES(ctx, place(state.table(), entries),
                InvalidArgument(attrs().label,
                                ": an id isn't where it can be; the state is of "
                                "another map, or broken"));
  }
};

REGISTER_OP("Merlin>PlaceIds")
    .Input("state: S * resource")
    .Input("slots: int64")
    .Input("ids: int64")
    .Input("rows: int64")
    .Input("scores: int64")
    .MERLIN_ID_STATE_ATTRS.SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>PlaceIds").Device(tensorflow::DEVICE_CPU), PlaceIdsOp);

// Which sizes the state's arrays have.
class IdSizesOp final : public IdOp {
 public:
  explicit IdSizesOp(OpKernelConstruction* ctx) : IdOp(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const IdShape& shape = attrs().shape;
    OP_REQUIRES_OK(ctx, OutputVector(ctx, "sizes",
                                     {shape.slots, shape.shards, shape.max_rows,
                                      attrs().dynamic ? shape.taken_words() : 0,
                                      shape.filter_size(), shape.meters()}));
  }
};

// Slots, shards, rows, words of `taken`, bytes of the filter, meters. S is of no use here.
REGISTER_OP("Merlin>IdSizes")
    .Output("sizes: int64")
    .MERLIN_ID_STATE_ATTRS.SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(6));
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>IdSizes").Device(tensorflow::DEVICE_CPU), IdSizesOp);

// Zeros that take no memory before they are written.
class LazyZerosOp final : public tensorflow::OpKernel {
 public:
  explicit LazyZerosOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("size", &size_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
  }
  void Compute(OpKernelContext* ctx) override {
    Tensor zeros;
    OP_REQUIRES_OK(ctx, AllocateTable(dtype_, TensorShape({size_}), &zeros));
    ctx->set_output(0, zeros);
  }

 private:
  int64_t size_;
  tensorflow::DataType dtype_;
};

REGISTER_OP("Merlin>LazyZeros")
    .Output("zeros: dtype")
    .Attr("size: int >= 0")
    .Attr("dtype: {uint8, uint16, int32, int64}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int64_t size;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("size", &size));
      c->set_output(0, c->Vector(size));
      return Ok();
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>LazyZeros").Device(tensorflow::DEVICE_CPU), LazyZerosOp);

}  // namespace
}  // namespace merlin
