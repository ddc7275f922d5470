// Ops of stateful id maps in a step: rows of ids, with and without changes of the map.
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/id_state.h"
#include "tf/status.h"
#include "tf/thread_pool.h"

namespace merlin {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;

// F features' ids, and where their rows go.
class IdLists {
 public:
  explicit IdLists(OpKernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padded", &padded_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("names", &names_));
  }

  Status Read(OpKernelContext* ctx, std::vector<IdList>* lists) const {
    OpInputList ids, padding;
    OpOutputList rows;
    MERLIN_RETURN_IF_ERROR(ctx->input_list("ids", &ids));
    MERLIN_RETURN_IF_ERROR(ctx->input_list("padding", &padding));
    MERLIN_RETURN_IF_ERROR(ctx->output_list("rows", &rows));
    if (padded_.size() != ids.size() || names_.size() != ids.size())
      return InvalidArgument("padded and names need an entry for each feature");
    int next_padding = 0;
    for (int f = 0; f < ids.size(); ++f) {
      Tensor* out = nullptr;
      MERLIN_RETURN_IF_ERROR(rows.allocate(f, ids[f].shape(), &out));
      IdList list{};
      list.ids = ids[f].flat<int64_t>().data();
      list.size = ids[f].NumElements();
      list.rows = out->flat<int64_t>().data();
      list.padded = padded_[f];
      if (list.padded) {
        if (next_padding == padding.size() || padding[next_padding].NumElements() != 1)
          return InvalidArgument(names_[f], ": the padding must be one id");
        list.padding = padding[next_padding++].flat<int64_t>()(0);
      }
      lists->push_back(list);
    }
    return Ok();
  }

  const std::string& name(int feature) const { return names_[feature]; }

 private:
  std::vector<bool> padded_;
  std::vector<std::string> names_;
};

Status SameShapes(InferenceContext* c, int state) {
  int features;
  MERLIN_RETURN_IF_ERROR(c->GetAttr("F", &features));
  for (int f = 0; f < features; ++f) c->set_output(f, c->input(state + f));
  return Ok();
}

class FindIdsOp final : public tensorflow::OpKernel {
 public:
  explicit FindIdsOp(OpKernelConstruction* ctx) : OpKernel(ctx), lists_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("oov_rows", &policy_.oov_rows));
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<IdList> lists;
    OP_REQUIRES_OK(ctx, lists_.Read(ctx, &lists));
    IdState state;
    OP_REQUIRES_OK(ctx, state.Open(ctx, attrs_, /*writing=*/false));
    find(state.table(), policy_, lists.data(), lists.size(), ThreadPool(ctx));
  }

 private:
  IdLists lists_;
  IdStateAttrs attrs_;
  IdPolicy policy_;
};

REGISTER_OP("Merlin>FindIds")
    .Input("state: S * resource")
    .Input("ids: F * int64")
    .Input("padding: P * int64")
    .Output("rows: F * int64")
    .Attr("F: int >= 1")
    .Attr("P: int >= 0")
    .Attr("padded: list(bool)")
    .Attr("oov_rows: int")
    .Attr("names: list(string)")
    .MERLIN_ID_STATE_ATTRS.SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int state;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("S", &state));
      return SameShapes(c, state);
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>FindIds").Device(tensorflow::DEVICE_CPU), FindIdsOp);

class AssignIdsOp final : public tensorflow::OpKernel {
 public:
  explicit AssignIdsOp(OpKernelConstruction* ctx) : OpKernel(ctx), lists_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("counted", &counted_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("scored", &scored_));
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
    OP_REQUIRES_OK(ctx, ReadIdPolicy(ctx, &policy_));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<IdList> lists;
    OP_REQUIRES_OK(ctx, lists_.Read(ctx, &lists));
    OP_REQUIRES_OK(ctx, Add(ctx, "counts", counted_, &IdList::counts, &lists));
    OP_REQUIRES_OK(ctx, Add(ctx, "scores", scored_, &IdList::scores, &lists));
    if (policy_.kind == PolicyKind::kCustom)
      for (size_t f = 0; f < lists.size(); ++f)
        OP_REQUIRES(ctx, lists[f].scores != nullptr || lists[f].size == 0,
                    InvalidArgument(lists_.name(f),
                                    ": the policy 'custom' goes by scores; give scores=, one an "
                                    "id, in [0, 2**32)"));
    IdChanges changes;
    {
      IdState state;
      OP_REQUIRES_OK(ctx, state.Open(ctx, attrs_, /*writing=*/true));
      const IdTrouble trouble =
          assign(state.table(), policy_, lists.data(), lists.size(), ThreadPool(ctx), &changes);
      OP_REQUIRES_OK(ctx, Refusal(trouble, lists));
    }
    OP_REQUIRES_OK(ctx, OutputChanges(ctx, changes));
  }

 private:
  // Counts or scores, of the features that have them.
  Status Add(OpKernelContext* ctx, const char* what, const std::vector<bool>& given,
             const int64_t* IdList::* field, std::vector<IdList>* lists) const {
    OpInputList inputs;
    MERLIN_RETURN_IF_ERROR(ctx->input_list(what, &inputs));
    if (given.size() != lists->size())
      return InvalidArgument(what, " need an entry for each feature");
    int next = 0;
    for (size_t f = 0; f < lists->size(); ++f) {
      if (!given[f]) continue;
      if (next == inputs.size())
        return InvalidArgument(lists_.name(f), ": no ", what, " came with the ids");
      const Tensor& values = inputs[next++];
      IdList& list = (*lists)[f];
      if (values.NumElements() != list.size)
        return InvalidArgument(lists_.name(f), ": ", values.NumElements(), " ", what, " for ",
                               list.size, " ids; there must be one an id");
      list.*field = values.flat<int64_t>().data();
    }
    return Ok();
  }

  Status Refusal(const IdTrouble& trouble, const std::vector<IdList>& lists) const {
    if (trouble.kind == IdTrouble::kNone) return Ok();
    if (trouble.kind == IdTrouble::kFull || trouble.kind == IdTrouble::kCrowded)
      return IdsFull(attrs_.label, trouble);
    const IdList& list = lists[trouble.list];
    const bool counts = trouble.kind == IdTrouble::kCount;
    return InvalidArgument(lists_.name(trouble.list), ": ", counts ? "count " : "score ",
                           (counts ? list.counts : list.scores)[trouble.position], " of id ",
                           list.ids[trouble.position], " at position ", trouble.position,
                           counts ? "; counts are at least 1" : "; scores are in [0, 2**32)");
  }

  IdLists lists_;
  IdStateAttrs attrs_;
  IdPolicy policy_;
  std::vector<bool> counted_, scored_;
};

REGISTER_OP("Merlin>AssignIds")
    .Input("state: S * resource")
    .Input("ids: F * int64")
    .Input("padding: P * int64")
    .Input("counts: C * int64")
    .Input("scores: G * int64")
    .Output("rows: F * int64")
    .MERLIN_ID_CHANGES.Attr("F: int >= 1")
    .Attr("P: int >= 0")
    .Attr("C: int >= 0")
    .Attr("G: int >= 0")
    .Attr("padded: list(bool)")
    .Attr("counted: list(bool)")
    .Attr("scored: list(bool)")
    .Attr("names: list(string)")
    .MERLIN_ID_STATE_ATTRS.MERLIN_ID_POLICY_ATTRS.SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int state, features;
      MERLIN_RETURN_IF_ERROR(c->GetAttr("S", &state));
      MERLIN_RETURN_IF_ERROR(c->GetAttr("F", &features));
      const auto changes = c->Vector(c->UnknownDim());
      for (int i = 0; i < 4; ++i) c->set_output(features + i, changes);
      return SameShapes(c, state);
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>AssignIds").Device(tensorflow::DEVICE_CPU), AssignIdsOp);

// Clocks alone: the rest of the state needs no look.
class ReleaseIdsOp final : public tensorflow::OpKernel {
 public:
  explicit ReleaseIdsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("label", &label_));
  }

  void Compute(OpKernelContext* ctx) override {
    IdState state;
    OP_REQUIRES_OK(ctx, state.OpenMeters(ctx, label_));
    release(state.table());
  }

 private:
  std::string label_;
};

REGISTER_OP("Merlin>ReleaseIds")
    .Input("meters: resource")
    .Attr("label: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_KERNEL_BUILDER(Name("Merlin>ReleaseIds").Device(tensorflow::DEVICE_CPU), ReleaseIdsOp);

class SetEpochOp final : public tensorflow::OpKernel {
 public:
  explicit SetEpochOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("label", &label_));
  }

  void Compute(OpKernelContext* ctx) override {
    const int64_t epoch = ctx->input(1).scalar<int64_t>()();
    OP_REQUIRES(ctx, epoch >= 0 && epoch <= kMaxEpoch,
                InvalidArgument(label_, ": epoch ", epoch, " is outside [0, ", kMaxEpoch, "]"));
    IdState state;
    OP_REQUIRES_OK(ctx, state.OpenMeters(ctx, label_));
    set_epoch(state.table(), epoch);
  }

 private:
  std::string label_;
};

REGISTER_OP("Merlin>SetEpoch")
    .Input("meters: resource")
    .Input("epoch: int64")
    .Attr("label: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::shape_inference::ShapeHandle epoch;
      return c->WithRank(c->input(1), 0, &epoch);
    });
REGISTER_KERNEL_BUILDER(Name("Merlin>SetEpoch").Device(tensorflow::DEVICE_CPU), SetEpochOp);

}  // namespace
}  // namespace merlin
