// Helpers of the kernels on one row of D numbers. K > 0 means D = 16 K, known when compiled.
#pragma once

#include "floats.h"
#include "types.h"

namespace merlin {
namespace MERLIN_ISA {

template <int K>
MERLIN_INLINE int64_t columns(int64_t dim) {
  return K > 0 ? K * kLanes : dim;
}

// Cache lines to have under way at once: measured, flat from 48 to 192.
constexpr int64_t kLinesAhead = 96;

template <int K>
MERLIN_INLINE int64_t rows_ahead(int64_t dim, int64_t bytes) {
  const int64_t lines = (columns<K>(dim) * bytes + 63) / 64;
  const int64_t ahead = kLinesAhead / lines;
  return ahead < 4 ? 4 : ahead > 32 ? 32 : ahead;
}

template <bool Write>
MERLIN_INLINE void prefetch(const void* row, int64_t bytes) {
  const char* p = static_cast<const char*>(row);
  for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(p + b, Write, 3);
}

// A sum whose order depends on D alone: sixteen partial sums, then pairs.
MERLIN_INLINE float sum_lanes(Lanes x) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
}

template <class F>
MERLIN_INLINE float dot(const float* a, const typename F::Storage* b, int64_t dim) {
  Lanes sum = {};
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes)
    sum += *reinterpret_cast<const Lanes*>(a + d) * F::widen(b + d);
  for (int i = 0; d < dim; ++d, ++i) sum[i] += a[d] * F::widen(b[d]);
  return sum_lanes(sum);
}

}  // namespace MERLIN_ISA
}  // namespace merlin
