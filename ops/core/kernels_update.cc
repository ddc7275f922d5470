// Summed gradients of distinct rows, and the optimizers' driver over them. Compiled once for each
// instruction set.
#include "kernels.h"
#include "rows.h"

namespace merlin {
namespace MERLIN_ISA {
namespace {

constexpr int64_t kSourcesAhead = 12;

// Of one lookup: where its bag's gradient lies, and the factor it takes.
struct Part {
  const FeatureGradient* feature;
  const float* gradient;  // [D]
  int32_t position;
  float factor;
};

MERLIN_INLINE Part part(const TableGradient& t, uint32_t source, int64_t dim) {
  const uint64_t wide = source;
  const FeatureGradient& f = t.features[wide >> t.shift];
  const int64_t place = wide & ((uint64_t{1} << t.shift) - 1);
  const int64_t bag = t.by_position && f.bag_of ? f.bag_of[place] : place;
  float factor = f.scale ? f.scale[bag] : 1;
  if (f.weights) factor *= f.weights[place];
  return {&f, f.pooled + bag * dim, static_cast<int32_t>(place), factor};
}

// Sums the gradient of distinct row u into `sum` [D], in the order of its sources. `Simple` means
// one feature, whose lookups all have factor 1.
template <int K, bool Simple>
MERLIN_INLINE void sum_row(const TableGradient& t, int64_t u, int64_t last_source, float* sum) {
  const int64_t dim = columns<K>(t.dim);
  Lanes lanes[K > 0 ? K : 1] = {};
  if constexpr (K == 0)
    for (int64_t d = 0; d < dim; ++d) sum[d] = 0;
  for (int64_t j = t.groups.offsets[u], end = t.groups.offsets[u + 1]; j < end; ++j) {
    if constexpr (Simple) {
      if (j + kSourcesAhead < last_source)
        prefetch<false>(t.features->pooled + t.groups.sources[j + kSourcesAhead] * dim, dim * 4);
      const float* gradient = t.features->pooled + t.groups.sources[j] * dim;
      if constexpr (K > 0) {
        for (int k = 0; k < K; ++k) lanes[k] += Float32::widen(gradient + k * kLanes);
      } else {
        for (int64_t d = 0; d < dim; ++d) sum[d] += gradient[d];
      }
    } else {
      const Part p = part(t, t.groups.sources[j], dim);
      if (p.feature->winners) {
        const int32_t* winners = p.feature->winners + (p.gradient - p.feature->pooled);
        float* into = K > 0 ? reinterpret_cast<float*>(lanes) : sum;
        for (int64_t d = 0; d < dim; ++d)
          into[d] += winners[d] == p.position ? p.gradient[d] * p.factor : 0;
      } else if constexpr (K > 0) {
        for (int k = 0; k < K; ++k) lanes[k] += Float32::widen(p.gradient + k * kLanes) * p.factor;
      } else {
        for (int64_t d = 0; d < dim; ++d) sum[d] += p.gradient[d] * p.factor;
      }
    }
  }
  if constexpr (K > 0)
    for (int k = 0; k < K; ++k) *reinterpret_cast<Lanes*>(sum + k * kLanes) = lanes[k];
}

bool simple(const TableGradient& t) {
  return t.feature_count == 1 && !t.by_position && !t.features->scale && !t.features->bag_of;
}

template <int K, bool Simple>
void values_of(const TableGradient& t, float* values, int64_t begin, int64_t end) {
  for (int64_t u = begin; u < end; ++u)
    sum_row<K, Simple>(t, u, t.groups.offsets[end], values + u * columns<K>(t.dim));
}

// The rule on one row of float32 weights; all pointers are of that row.
template <class Rule, int K>
MERLIN_INLINE void apply(const Rule& rule, float decay, int64_t dim,
                         const float* __restrict gradient, float* __restrict weights,
                         float* const* slots) {
  dim = columns<K>(dim);
  float step = 0;
  if constexpr (Rule::kRowSlots > 0)
    step = rule.row(dot<Float32>(gradient, gradient, dim) / static_cast<float>(dim),
                    slots[Rule::kElementSlots]);
  if (decay != 0)
    for (int64_t d = 0; d < dim; ++d) weights[d] -= weights[d] * decay;
  if constexpr (Rule::kElementSlots == 0) {
    for (int64_t d = 0; d < dim; ++d) rule.element(gradient[d], step, weights[d], nullptr);
  } else if constexpr (Rule::kElementSlots == 1) {
    float* __restrict slot = slots[0];
    for (int64_t d = 0; d < dim; ++d) {
      float s[1] = {slot[d]};
      rule.element(gradient[d], step, weights[d], s);
      slot[d] = s[0];
    }
  } else {
    static_assert(Rule::kElementSlots == 2, "kMaxSlots");
    float* __restrict slot_0 = slots[0], * __restrict slot_1 = slots[1];
    for (int64_t d = 0; d < dim; ++d) {
      float s[2] = {slot_0[d], slot_1[d]};
      rule.element(gradient[d], step, weights[d], s);
      slot_0[d] = s[0];
      slot_1[d] = s[1];
    }
  }
}

// Scratch of two rows: on the stack up to this many columns, on the heap above.
constexpr int64_t kStackColumns = 512;

template <class Rule, class F, int K, bool Simple>
void update_rows(const UpdateTask& t, int64_t begin, int64_t end) {
  using Storage = typename F::Storage;
  constexpr bool kInPlace = sizeof(Storage) == 4;
  const Rule rule(t.common, t.hyper);
  const float decay = t.common.weight_decay * t.common.learning_rate,
              scale = t.common.gradient_scale;
  const int64_t dim = columns<K>(t.table.dim), bytes = dim * sizeof(Storage);
  const int64_t ahead = rows_ahead<K>(dim, sizeof(Storage) + 4 * Rule::kElementSlots);
  Storage* data = static_cast<Storage*>(t.table.data);
  const int64_t* rows = t.gradient.groups.rows;
  alignas(64) float stack[2 * kStackColumns];
  float* gradient = dim <= kStackColumns ? stack : new float[2 * dim];
  float* widened = gradient + dim;
  const int64_t last_source = t.gradient.groups.offsets[end];
  for (int64_t u = begin; u < end; ++u) {
    if (u + ahead < end) {
      const int64_t next = rows[u + ahead];
      prefetch<true>(data + next * dim, bytes);
      for (int s = 0; s < Rule::kElementSlots; ++s)
        prefetch<true>(t.slots[s] + next * dim, dim * 4);
      for (int s = 0; s < Rule::kRowSlots; ++s)
        prefetch<true>(t.slots[Rule::kElementSlots + s] + next, 4);
    }
    const int64_t row = rows[u];
    sum_row<K, Simple>(t.gradient, u, last_source, gradient);
    if (scale != 1)
      for (int64_t d = 0; d < dim; ++d) gradient[d] *= scale;
    float* slots[kMaxSlots + 1] = {};
    for (int s = 0; s < Rule::kElementSlots; ++s) slots[s] = t.slots[s] + row * dim;
    if constexpr (Rule::kRowSlots > 0)
      slots[Rule::kElementSlots] = t.slots[Rule::kElementSlots] + row;
    Storage* weights = data + row * dim;
    if constexpr (kInPlace) {
      apply<Rule, K>(rule, decay, dim, gradient, weights, slots);
    } else {
      for (int64_t d = 0; d < dim; ++d) widened[d] = F::widen(weights[d]);
      apply<Rule, K>(rule, decay, dim, gradient, widened, slots);
      for (int64_t d = 0; d < dim; ++d) weights[d] = F::narrow(widened[d]);
    }
    t.changed[row] = 1;
  }
  if (gradient != stack) delete[] gradient;
}

template <class Rule, class F, int K>
void update_simple_or_not(const UpdateTask& t, int64_t begin, int64_t end) {
  if (simple(t.gradient)) return update_rows<Rule, F, K, true>(t, begin, end);
  return update_rows<Rule, F, K, false>(t, begin, end);
}

template <class Rule>
void update_by(const UpdateTask& t, int64_t begin, int64_t end) {
  if (t.table.dtype == DType::kBfloat16)
    return update_simple_or_not<Rule, Bfloat16, 0>(t, begin, end);
  if (t.table.dtype == DType::kFloat16)
    return update_simple_or_not<Rule, Float16, 0>(t, begin, end);
  switch (t.table.dim) {
    case 16:
      return update_simple_or_not<Rule, Float32, 1>(t, begin, end);
    case 32:
      return update_simple_or_not<Rule, Float32, 2>(t, begin, end);
    case 64:
      return update_simple_or_not<Rule, Float32, 4>(t, begin, end);
    case 128:
      return update_simple_or_not<Rule, Float32, 8>(t, begin, end);
    default:
      return update_simple_or_not<Rule, Float32, 0>(t, begin, end);
  }
}

template <int K>
void values_simple_or_not(const TableGradient& t, float* values, int64_t begin, int64_t end) {
  if (simple(t)) return values_of<K, true>(t, values, begin, end);
  return values_of<K, false>(t, values, begin, end);
}

}  // namespace

void values(const TableGradient& t, float* out, int64_t begin, int64_t end) {
  switch (t.dim) {
    case 16:
      return values_simple_or_not<1>(t, out, begin, end);
    case 32:
      return values_simple_or_not<2>(t, out, begin, end);
    case 64:
      return values_simple_or_not<4>(t, out, begin, end);
    case 128:
      return values_simple_or_not<8>(t, out, begin, end);
    default:
      return values_simple_or_not<0>(t, out, begin, end);
  }
}

void update(const UpdateTask& t, int64_t begin, int64_t end) {
  switch (t.rule) {
    case RuleId::kSgd:
      return update_by<Sgd>(t, begin, end);
    case RuleId::kMomentum:
      return update_by<Momentum>(t, begin, end);
    case RuleId::kAdagrad:
      return update_by<Adagrad>(t, begin, end);
    case RuleId::kRowwiseAdagrad:
      return update_by<RowwiseAdagrad>(t, begin, end);
    case RuleId::kAdam:
      return update_by<Adam>(t, begin, end);
  }
}

}  // namespace MERLIN_ISA
}  // namespace merlin
