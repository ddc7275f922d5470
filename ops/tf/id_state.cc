#include "tf/id_state.h"

#include <algorithm>

#include "tf/status.h"

namespace merlin {
namespace {

// What the core's shapes take; see core/id_table.h.
constexpr int64_t kMostManaged = int64_t{1} << 30, kMostDynamic = int64_t{1} << 29;

}  // namespace

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

Status IdStateAttrs::Read(OpKernelConstruction* ctx) {
  std::string kind;
  int64_t capacity, initial, admit_after;
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("kind", &kind));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("label", &label));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("capacity", &capacity));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("initial", &initial));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("admit_after", &admit_after));
  dynamic = kind == "dynamic";
  const int64_t most = dynamic ? kMostDynamic : kMostManaged;
  if (capacity < 1 || capacity > most)
    return InvalidArgument(label, ": a capacity of ", capacity, "; it must be in [1, ", most, "]");
  if (dynamic && (initial < 1 || initial > capacity))
    return InvalidArgument(label, ": room for ", initial, " rows at first, of ", capacity);
  const int64_t latest = dynamic ? 1 : kMaxAdmitAfter;
  if (admit_after < 1 || admit_after > latest)
    return InvalidArgument(label, ": admission after ", admit_after,
                           " sightings; it must be in [1, ", latest, "]");
  shape = dynamic ? dynamic_shape(initial, capacity) : managed_shape(capacity, admit_after);
  return Ok();
}

Status ReadIdPolicy(OpKernelConstruction* ctx, IdPolicy* policy) {
  std::string kind;
  float probability;
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("policy", &kind));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("half_life", &policy->half_life));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("ttl", &policy->ttl));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("admit_after", &policy->admit_after));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("admit_probability", &probability));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("contest", &policy->contest));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("open_routes", &policy->open_routes));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("oov_rows", &policy->oov_rows));
  MERLIN_RETURN_IF_ERROR(ctx->GetAttr("evict", &policy->evict));
  policy->admit_probability = probability;
  policy->kind = kind == "lru"           ? PolicyKind::kLru
                 : kind == "lfu"         ? PolicyKind::kLfu
                 : kind == "decayed_lfu" ? PolicyKind::kDecayedLfu
                 : kind == "epoch_lru"   ? PolicyKind::kEpochLru
                 : kind == "epoch_lfu"   ? PolicyKind::kEpochLfu
                 : kind == "ttl"         ? PolicyKind::kTtl
                                         : PolicyKind::kCustom;
  if (policy->half_life < 1 || policy->ttl < 1 || !(probability > 0 && probability <= 1) ||
      policy->open_routes < 0 || policy->open_routes > kMaxOpenRoutes || policy->oov_rows < 0)
    return InvalidArgument("half_life=", policy->half_life, ", ttl=", policy->ttl,
                           ", admit_probability=", probability,
                           ", open_routes=", policy->open_routes, ", oov_rows=", policy->oov_rows,
                           ": one of them is out of range");
  return Ok();
}

namespace {

// The index begins with `initial` buckets and doubles.
bool CanBeActive(const IdShape& shape, int64_t active) {
  return active == 0 || (active >= shape.initial && active <= shape.buckets &&
                         active % shape.initial == 0 && shape.buckets % active == 0);
}

// The buffer of a state variable, if it is what the struct wants to look at.
template <class T>
Status View(const Variables& variables, int* next, tensorflow::DataType dtype, int64_t size,
            const char* what, const std::string& label, T** data) {
  *data = nullptr;
  if (size == 0) return Ok();
  if (*next >= variables.size())
    return InvalidArgument(label, ": the state of its ids has no ", what);
  Tensor* tensor = variables.tensor((*next)++);
  if (tensor->dtype() != dtype || tensor->dims() != 1 || tensor->NumElements() != size)
    return InvalidArgument(
        label, ": the ", what, " of its ids are ", tensorflow::DataTypeString(tensor->dtype()),
        tensor->shape().DebugString(), ", not ", tensorflow::DataTypeString(dtype), "[", size, "]");
  *data = static_cast<T*>(tensor->data());
  return Ok();
}

}  // namespace

Status IdState::Open(OpKernelContext* ctx, const IdStateAttrs& attrs, bool writing) {
  tensorflow::OpInputList state;
  MERLIN_RETURN_IF_ERROR(ctx->input_list("state", &state));
  MERLIN_RETURN_IF_ERROR(variables_.Add(ctx, 0, state.size(), "state of ids"));
  MERLIN_RETURN_IF_ERROR(writing ? variables_.LockForWriting() : variables_.LockShared());
  const IdShape& shape = attrs.shape;
  const int64_t slots = shape.slots;
  const bool dynamic = attrs.dynamic;
  const std::string& label = attrs.label;
  int next = 0;
  const auto view = [&](tensorflow::DataType dtype, int64_t size, const char* what, auto** data) {
    return View(variables_, &next, dtype, size, what, label, data);
  };
  using namespace tensorflow;  // the names of dtypes
  MERLIN_RETURN_IF_ERROR(view(DT_UINT8, slots, "tags", &table_.tags));
  MERLIN_RETURN_IF_ERROR(view(DT_INT64, slots, "keys", &table_.keys));
  MERLIN_RETURN_IF_ERROR(view(DT_INT32, slots, "scores", &table_.scores));
  MERLIN_RETURN_IF_ERROR(view(DT_UINT16, slots, "pins", &table_.pins));
  MERLIN_RETURN_IF_ERROR(view(DT_INT32, dynamic ? slots : 0, "rows", &table_.rows));
  MERLIN_RETURN_IF_ERROR(view(DT_INT64, dynamic ? shape.taken_words() : 0, "taken", &table_.taken));
  MERLIN_RETURN_IF_ERROR(view(DT_UINT8, shape.filter_size(), "filter", &table_.filter));
  MERLIN_RETURN_IF_ERROR(view(DT_INT64, shape.meters(), "meters", &table_.meters));
  if (next != variables_.size())
    return InvalidArgument(label, ": the state of its ids has ", variables_.size(),
                           " variables, not ", next);
  table_.shape = shape;
  // Values come from files, too: those that say where to read and write must be places.
  const int64_t* meters = table_.meters;
  const auto within = [&](Meter meter, int64_t most) {
    return meters[meter] >= 0 && meters[meter] <= most;
  };
  if (!within(kUsed, std::min(shape.max_rows, slots)) || !within(kReleased, meters[kClock]) ||
      !within(kEpoch, kMaxEpoch) || !within(kEpochBegan, meters[kClock]) ||
      (dynamic && (!CanBeActive(shape, meters[kActive]) ||
                   !within(kFreeFrom, shape.taken_words()) || !within(kHighest, shape.max_rows))))
    return tensorflow::errors::DataLoss(
        label, ": the meters of its ids' state can't be; the state is of another map, or broken");
  return Ok();
}

Status IdState::OpenMeters(OpKernelContext* ctx, const std::string& label) {
  MERLIN_RETURN_IF_ERROR(variables_.Add(ctx, 0, 1, "state of ids"));
  MERLIN_RETURN_IF_ERROR(variables_.LockForWriting());
  Tensor* meters = variables_.tensor(0);
  if (meters->dtype() != tensorflow::DT_INT64 || meters->NumElements() <= kFill)
    return InvalidArgument(label, ": the meters of its ids are ",
                           tensorflow::DataTypeString(meters->dtype()),
                           meters->shape().DebugString());
  table_.meters = meters->flat<int64_t>().data();
  return Ok();
}

Status IdsFull(const std::string& label, const IdTrouble& trouble) {
  if (trouble.kind == IdTrouble::kCrowded)
    return tensorflow::errors::ResourceExhausted(
        label, ": id ", trouble.missing,
        " has no place in the index, though rows are free: both "
        "its buckets are full of ids that have no other. Hashes of ids don't do that by chance; "
        "raise max_rows, or let old ids go (when_full='lru')");
  return tensorflow::errors::ResourceExhausted(
      label, ": ", trouble.missing, " new ids, and ", trouble.free,
      " free rows; raise max_rows, let old ids go (when_full='lru'), or make room with restrict()");
}

Status OutputVector(OpKernelContext* ctx, const char* name, const std::vector<int64_t>& values) {
  Tensor* out = nullptr;
  const tensorflow::TensorShape shape({static_cast<int64_t>(values.size())});
  MERLIN_RETURN_IF_ERROR(ctx->allocate_output(name, shape, &out));
  std::copy(values.begin(), values.end(), out->flat<int64_t>().data());
  return Ok();
}

Status OutputChanges(OpKernelContext* ctx, const IdChanges& changes) {
  MERLIN_RETURN_IF_ERROR(OutputVector(ctx, "changed", changes.rows));
  MERLIN_RETURN_IF_ERROR(OutputVector(ctx, "new_ids", changes.new_ids));
  MERLIN_RETURN_IF_ERROR(OutputVector(ctx, "old_ids", changes.old_ids));
  Tensor* out = nullptr;
  const tensorflow::TensorShape shape({static_cast<int64_t>(changes.had_old.size())});
  MERLIN_RETURN_IF_ERROR(ctx->allocate_output("had_old", shape, &out));
  std::copy(changes.had_old.begin(), changes.had_old.end(), out->flat<bool>().data());
  return Ok();
}

}  // namespace merlin
