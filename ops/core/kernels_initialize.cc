// Values of fresh rows, each a function of (seed, key, column) alone. Compiled once for each
// instruction set.
#include <cmath>

#include "kernels.h"
#include "rows.h"

namespace merlin {
namespace MERLIN_ISA {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
MERLIN_INLINE uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// 32 random bits of a column, from the 64 of its row: a Weyl step, then MurmurHash3's finalizer
// with the upper half of the row in the middle.
MERLIN_INLINE uint32_t column_bits(uint64_t row, uint32_t column) {
  uint32_t x = static_cast<uint32_t>(row) + column * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x ^= static_cast<uint32_t>(row >> 32);
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// Quantile of the standard normal distribution, relative error about 1e-7 (Wichura, 1988, AS 241,
// PPND7).
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
  }
  double r = std::sqrt(-std::log(q < 0 ? p : 1 - p)), x;
  if (r <= 5) {
    r -= 1.6;
    x = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
        ((0.12021132975 * r + 0.73700164250) * r + 1);
  } else {
    r -= 5;
    x = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
        ((0.012258202635 * r + 0.24197894225) * r + 1);
  }
  return q < 0 ? -x : x;
}

// What of the distribution lies below two standard deviations under the mean.
constexpr double kBelowTwo = 0.022750131948179195;

template <class F>
void fill(const InitializeTask& t, int64_t begin, int64_t end) {
  using Storage = typename F::Storage;
  const int64_t dim = t.table.dim;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t key = t.keys ? t.keys[r] : r;
    const uint64_t row = mix(t.seed ^ mix(static_cast<uint64_t>(key)));
    Storage* __restrict out = static_cast<Storage*>(t.table.data) + (t.into ? t.into[r] : r) * dim;
    switch (t.distribution) {
      case Distribution::kConstant:
        for (int64_t d = 0; d < dim; ++d) out[d] = F::narrow(t.first);
        break;
      case Distribution::kUniform: {
        const float width = t.second - t.first;
        for (int64_t d = 0; d < dim; ++d) {
          const int32_t steps = column_bits(row, static_cast<uint32_t>(d)) >> 8;
          const float unit = (static_cast<float>(steps) + 0.5f) * 0x1p-24f;
          out[d] = F::narrow(t.first + width * unit);
        }
        break;
      }
      default: {
        const bool cut = t.distribution == Distribution::kTruncatedNormal;
        const double low = cut ? kBelowTwo : 0, share = cut ? 1 - 2 * kBelowTwo : 1;
        for (int64_t d = 0; d < dim; ++d) {
          const double unit = (column_bits(row, static_cast<uint32_t>(d)) + 0.5) * 0x1p-32;
          const double x = normal_quantile(low + share * unit);
          out[d] = F::narrow(static_cast<float>(t.first + t.second * x));
        }
      }
    }
  }
}

}  // namespace

void initialize(const InitializeTask& t, int64_t begin, int64_t end) {
  switch (t.table.dtype) {
    case DType::kBfloat16:
      return fill<Bfloat16>(t, begin, end);
    case DType::kFloat16:
      return fill<Float16>(t, begin, end);
    default:
      return fill<Float32>(t, begin, end);
  }
}

}  // namespace MERLIN_ISA
}  // namespace merlin
