// Lookup and pooling, and the gradient of the weights. Compiled once for each instruction set.
#include <cmath>
#include <limits>

#include "kernels.h"
#include "rows.h"

namespace merlin {
namespace MERLIN_ISA {
namespace {

// Whether a line that is not in the table is an error, and not just a lookup without a vector.
MERLIN_INLINE bool refused(const Pooling& p, int64_t line) { return line != kNoLine || p.strict; }

// Divides by the number (or the sum of weights) that the combiner asks for; 0 where that is 0.
MERLIN_INLINE float bag_scale(Combiner combiner, float sum, float sum_of_squares) {
  if (combiner == Combiner::kSum) return 1;
  const float divisor = combiner == Combiner::kMean ? sum : std::sqrt(sum_of_squares);
  return divisor != 0 ? 1 / divisor : 0;
}

template <class F, int K, bool Weighted>
int64_t pool(const LookupTask& t, int64_t begin, int64_t end) {
  using Storage = typename F::Storage;
  const Pooling& p = t.pooling;
  const int64_t dim = columns<K>(t.table.dim), bytes = dim * sizeof(Storage);
  const int64_t ahead = rows_ahead<K>(t.table.dim, sizeof(Storage));
  const Storage* data = static_cast<const Storage*>(t.table.data);
  const uint64_t rows = static_cast<uint64_t>(t.table.rows);
  const int64_t stop = p.begin(end);
  int64_t bad = -1, i = p.begin(begin);
  for (int64_t j = i; j < i + ahead && j < stop; ++j)
    if (static_cast<uint64_t>(p.lines[j]) < rows) prefetch<false>(data + p.lines[j] * dim, bytes);
  for (int64_t bag = begin; bag < end; ++bag) {
    float* out = t.pooled + bag * dim;
    Lanes sum[K > 0 ? K : 1] = {};
    if constexpr (K == 0)
      for (int64_t d = 0; d < dim; ++d) out[d] = 0;
    int64_t count = 0;
    float total = 0, squares = 0;
    for (const int64_t last = p.begin(bag + 1); i < last; ++i) {
      if (i + ahead < stop) {
        const int64_t next = p.lines[i + ahead];
        if (static_cast<uint64_t>(next) < rows) prefetch<false>(data + next * dim, bytes);
      }
      const int64_t line = p.lines[i];
      if (static_cast<uint64_t>(line) >= rows) {
        if (refused(p, line) && bad < 0) bad = i;
        continue;
      }
      const float weight = Weighted ? p.weights[i] : 1;
      if constexpr (Weighted) {
        total += weight;
        squares += weight * weight;
      } else {
        ++count;
      }
      const Storage* row = data + line * dim;
      if constexpr (K > 0) {
        for (int k = 0; k < K; ++k) {
          const Lanes x = F::widen(row + k * kLanes);
          sum[k] += Weighted ? x * weight : x;
        }
      } else {
        for (int64_t d = 0; d < dim; ++d)
          out[d] += Weighted ? F::widen(row[d]) * weight : F::widen(row[d]);
      }
    }
    if constexpr (!Weighted) total = squares = static_cast<float>(count);
    const float scale = bag_scale(p.combiner, total, squares);
    if constexpr (K > 0) {
      if (t.stream) {
        for (int k = 0; k < K; ++k) store_past_caches(out + k * kLanes, sum[k] * scale);
      } else {
        for (int k = 0; k < K; ++k) *reinterpret_cast<Lanes*>(out + k * kLanes) = sum[k] * scale;
      }
    } else if (scale != 1) {
      for (int64_t d = 0; d < dim; ++d) out[d] *= scale;
    }
  }
  if (t.stream) end_of_stores_past_caches();
  return bad;
}

// Element by element; the first of equal maxima wins, and a NaN wins over numbers.
template <class F>
int64_t pool_max(const LookupTask& t, int64_t begin, int64_t end) {
  using Storage = typename F::Storage;
  const Pooling& p = t.pooling;
  const int64_t dim = t.table.dim;
  const Storage* data = static_cast<const Storage*>(t.table.data);
  const uint64_t rows = static_cast<uint64_t>(t.table.rows);
  int64_t bad = -1;
  for (int64_t bag = begin; bag < end; ++bag) {
    float* out = t.pooled + bag * dim;
    int32_t* winner = t.winners + bag * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = 0, winner[d] = -1;
    bool first = true;
    for (int64_t i = p.begin(bag), last = p.begin(bag + 1); i < last; ++i) {
      const int64_t line = p.lines[i];
      if (static_cast<uint64_t>(line) >= rows) {
        if (refused(p, line) && bad < 0) bad = i;
        continue;
      }
      const Storage* row = data + line * dim;
      const int32_t position = static_cast<int32_t>(i);
      for (int64_t d = 0; d < dim; ++d) {
        const float x = F::widen(row[d]);
        const bool wins = first || x > out[d] || (x != x && out[d] == out[d]);
        out[d] = wins ? x : out[d];
        winner[d] = wins ? position : winner[d];
      }
      first = false;
    }
  }
  return bad;
}

template <class F, int K>
int64_t pool_weighted_or_not(const LookupTask& t, int64_t begin, int64_t end) {
  return t.pooling.weights ? pool<F, K, true>(t, begin, end) : pool<F, K, false>(t, begin, end);
}

template <class F>
int64_t pool_any(const LookupTask& t, int64_t begin, int64_t end) {
  if (t.pooling.combiner == Combiner::kMax) return pool_max<F>(t, begin, end);
  switch (t.table.dim) {
    case 16:
      return pool_weighted_or_not<F, 1>(t, begin, end);
    case 32:
      return pool_weighted_or_not<F, 2>(t, begin, end);
    case 64:
      return pool_weighted_or_not<F, 4>(t, begin, end);
    case 128:
      return pool_weighted_or_not<F, 8>(t, begin, end);
    default:
      return pool_weighted_or_not<F, 0>(t, begin, end);
  }
}

// With dot_n = <gradient of the bag, row_n>: sum gives dot_n; mean (dot_n - sum(w dot)/sum(w)) /
// sum(w); sqrtn, with r = sqrt(sum(w^2)), dot_n / r - w_n sum(w dot) / r^3.
template <class F>
void weight_gradient_of(const WeightGradientTask& t, int64_t begin, int64_t end) {
  using Storage = typename F::Storage;
  const Pooling& p = t.pooling;
  const int64_t dim = t.table.dim;
  const Storage* data = static_cast<const Storage*>(t.table.data);
  const uint64_t rows = static_cast<uint64_t>(t.table.rows);
  float* out = t.weight_gradients;
  for (int64_t bag = begin; bag < end; ++bag) {
    const int64_t first = p.begin(bag), last = p.begin(bag + 1);
    float total = 0, squares = 0, weighted_dots = 0;
    for (int64_t i = first; i < last; ++i) {
      out[i] = 0;
      if (static_cast<uint64_t>(p.lines[i]) >= rows) continue;
      out[i] = dot<F>(t.gradient + bag * dim, data + p.lines[i] * dim, dim);
      total += p.weights[i];
      squares += p.weights[i] * p.weights[i];
      weighted_dots += p.weights[i] * out[i];
    }
    if (p.combiner == Combiner::kSum) continue;
    const float scale = bag_scale(p.combiner, total, squares);
    for (int64_t i = first; i < last; ++i) {
      if (static_cast<uint64_t>(p.lines[i]) >= rows) continue;
      const float share = p.combiner == Combiner::kMean ? scale : p.weights[i] * scale * scale;
      out[i] = (out[i] - weighted_dots * share) * scale;
    }
  }
}

}  // namespace

int64_t lookup(const LookupTask& t, int64_t begin, int64_t end) {
  switch (t.table.dtype) {
    case DType::kBfloat16:
      return pool_any<Bfloat16>(t, begin, end);
    case DType::kFloat16:
      return pool_any<Float16>(t, begin, end);
    default:
      return pool_any<Float32>(t, begin, end);
  }
}

void weight_gradient(const WeightGradientTask& t, int64_t begin, int64_t end) {
  switch (t.table.dtype) {
    case DType::kBfloat16:
      return weight_gradient_of<Bfloat16>(t, begin, end);
    case DType::kFloat16:
      return weight_gradient_of<Float16>(t, begin, end);
    default:
      return weight_gradient_of<Float32>(t, begin, end);
  }
}

}  // namespace MERLIN_ISA
}  // namespace merlin
