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

#define MERLIN_LAMBDA __attribute__((always_inline))

// Calls element(gradient, weight, slots) for each number of a row.
template <int kSlots, class Element>
MERLIN_INLINE void each(int64_t dim, float* __restrict gradient, float* __restrict weights,
                        float* const* slots, const Element& element) {
  static_assert(kSlots <= 3, "kMaxSlots");
  float* __restrict slot_0 = slots[0];
  float* __restrict slot_1 = slots[1];
  float* __restrict slot_2 = slots[2];
  for (int64_t d = 0; d < dim; ++d) {
    float s[kMaxSlots] = {};
    if constexpr (kSlots > 0) s[0] = slot_0[d];
    if constexpr (kSlots > 1) s[1] = slot_1[d];
    if constexpr (kSlots > 2) s[2] = slot_2[d];
    element(gradient[d], weights[d], s);
    if constexpr (kSlots > 0) slot_0[d] = s[0];
    if constexpr (kSlots > 1) slot_1[d] = s[1];
    if constexpr (kSlots > 2) slot_2[d] = s[2];
  }
}

MERLIN_INLINE float norm(const float* row, int64_t dim) {
  return __builtin_sqrtf(dot<Float32>(row, row, dim));
}

// One step on one row of float32 weights, as rules.h has it; all pointers are of that row. The
// gradient is scratch: `l2` and the trust ratios write to it.
template <class Rule, int K>
MERLIN_INLINE void apply(const Rule& rule, const CommonHyper& common, int64_t dim,
                         float* __restrict gradient, float* __restrict weights,
                         float* const* slots) {
  dim = columns<K>(dim);
  constexpr int kSlots = Rule::kElementSlots;
  if (common.gradient_scale != 1)
    for (int64_t d = 0; d < dim; ++d) gradient[d] *= common.gradient_scale;
  if (common.l2 != 0)
    for (int64_t d = 0; d < dim; ++d) gradient[d] += common.l2 * weights[d];
  float step = 0;
  if constexpr (Rule::kRowSlots > 0)
    step = rule.row(dot<Float32>(gradient, gradient, dim) / static_cast<float>(dim), slots[kSlots]);
  if constexpr (Rule::kTrustRatio) {
    each<kSlots>(dim, gradient, weights, slots, [&](float& g, float& w, float* s) MERLIN_LAMBDA {
      g = rule.direction(g, step, w, s);
    });
    step = rule.trust(step, norm(weights, dim), norm(gradient, dim));
  } else if (const float decay = common.weight_decay * common.learning_rate; decay != 0) {
    for (int64_t d = 0; d < dim; ++d) weights[d] -= weights[d] * decay;
  }
  each<kSlots>(dim, gradient, weights, slots,
               [&](float& g, float& w, float* s) MERLIN_LAMBDA { rule.element(g, step, w, s); });
  if (common.max_norm > 0)
    if (const float length = norm(weights, dim); length > common.max_norm)
      for (int64_t d = 0; d < dim; ++d) weights[d] *= common.max_norm / length;
}

// Scratch of two rows: on the stack up to this many columns, on the heap above.
constexpr int64_t kStackColumns = 512;

// sum_row as a function of its own: copies in every rule would take minutes to compile.
using SumRow = void (*)(const TableGradient&, int64_t u, int64_t last_source, float* sum);

template <int K>
SumRow sum_row_for(const TableGradient& t) {
  return simple(t) ? sum_row<K, true> : sum_row<K, false>;
}

template <class Rule, class F, int K>
void update_rows(const UpdateTask& t, int64_t begin, int64_t end) {
  using Storage = typename F::Storage;
  constexpr bool kInPlace = sizeof(Storage) == 4;
  const CommonHyper common = t.common;
  const Rule rule(common, t.hyper);
  const int64_t dim = columns<K>(t.table.dim), bytes = dim * sizeof(Storage);
  const int64_t ahead = rows_ahead<K>(dim, sizeof(Storage) + 4 * Rule::kElementSlots);
  Storage* data = static_cast<Storage*>(t.table.data);
  const int64_t* rows = t.gradient.groups.rows;
  alignas(64) float stack[2 * kStackColumns];
  float* gradient = dim <= kStackColumns ? stack : new float[2 * dim];
  float* widened = gradient + dim;
  const int64_t last_source = t.gradient.groups.offsets[end];
  const SumRow sum = sum_row_for<K>(t.gradient);
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
    sum(t.gradient, u, last_source, gradient);
    float* slots[kMaxSlots + 1] = {};
    for (int s = 0; s < Rule::kElementSlots; ++s) slots[s] = t.slots[s] + row * dim;
    if constexpr (Rule::kRowSlots > 0)
      slots[Rule::kElementSlots] = t.slots[Rule::kElementSlots] + row;
    Storage* weights = data + row * dim;
    if constexpr (kInPlace) {
      apply<Rule, K>(rule, common, dim, gradient, weights, slots);
    } else {
      for (int64_t d = 0; d < dim; ++d) widened[d] = F::widen(weights[d]);
      apply<Rule, K>(rule, common, dim, gradient, widened, slots);
      for (int64_t d = 0; d < dim; ++d) weights[d] = F::narrow(widened[d]);
    }
    t.changed[row] = 1;
  }
  if (gradient != stack) delete[] gradient;
}

template <class Rule>
void update_by(const UpdateTask& t, int64_t begin, int64_t end) {
  if (t.table.dtype == DType::kBfloat16) return update_rows<Rule, Bfloat16, 0>(t, begin, end);
  if (t.table.dtype == DType::kFloat16) return update_rows<Rule, Float16, 0>(t, begin, end);
  switch (t.table.dim) {
    case 16:
      return update_rows<Rule, Float32, 1>(t, begin, end);
    case 32:
      return update_rows<Rule, Float32, 2>(t, begin, end);
    case 64:
      return update_rows<Rule, Float32, 4>(t, begin, end);
    case 128:
      return update_rows<Rule, Float32, 8>(t, begin, end);
    default:
      return update_rows<Rule, Float32, 0>(t, begin, end);
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
#define MERLIN_RULE_CASE(id, rule, name) \
  case RuleId::id:                       \
    return update_by<rule>(t, begin, end);
    MERLIN_RULES(MERLIN_RULE_CASE)
#undef MERLIN_RULE_CASE
  }
}

}  // namespace MERLIN_ISA
}  // namespace merlin
