// The plain structs that kernels, drivers and bindings pass around. Shapes stand in the comments:
// R rows and D columns of a table, N lookups, B bags, U distinct rows, M lookups that have a row.
#pragma once

#include <cstdint>

// Inline everywhere, always: a copy of such a function that was compiled for AVX-512 must never be
// the one that the linker keeps for all. CUDA twins share them.
#ifdef __CUDACC__
#define MERLIN_ALWAYS_INLINE __host__ __device__ inline __attribute__((always_inline))
#else
#define MERLIN_ALWAYS_INLINE inline __attribute__((always_inline))
#endif

namespace merlin {

enum class DType : int32_t { kFloat32, kBfloat16, kFloat16 };

MERLIN_ALWAYS_INLINE constexpr int64_t size_of(DType dtype) {
  return dtype == DType::kFloat32 ? 4 : 2;
}

// No combiner is a sum over bags of one lookup each.
enum class Combiner : int32_t { kSum, kMean, kSqrtN, kMax };

// The line of a lookup that has no vector: it adds nothing to its bag, and nothing to a divisor.
constexpr int64_t kNoLine = -1;

struct Table {
  void* data;  // [R, D]
  int64_t rows;
  int64_t dim;
  DType dtype;

  MERLIN_ALWAYS_INLINE char* row(int64_t line) const {
    return static_cast<char*>(data) + line * dim * size_of(dtype);
  }
};

// One feature's lookups in one table.
struct Pooling {
  const int64_t* lines;       // [N], each kNoLine or in [0, R)
  const int64_t* row_splits;  // [B + 1], or null: every bag has `hotness` lookups
  const float* weights;       // [N], or null
  int64_t lookups;            // N
  int64_t bags;               // B
  int64_t hotness;
  Combiner combiner;
  bool strict;  // kNoLine is refused too: the lines are ids that nobody has checked yet

  MERLIN_ALWAYS_INLINE int64_t begin(int64_t bag) const {
    return row_splits ? row_splits[bag] : bag * hotness;
  }
};

// The lookups of one table in a step, grouped by row. A source names a feature of the table (high
// bits) and, in the low `shift` bits, one of its bags or, when `by_position`, one of its lookups.
// Sources of a row ascend, so that sums have one order whatever the number of threads.
struct Groups {
  const int64_t* rows;      // [U], ascending
  const int32_t* offsets;   // [U + 1] into sources
  const uint32_t* sources;  // [M]
  int64_t size;             // U
};

// Bits of a source that hold the bag or the position, for a table that `features` features share.
MERLIN_ALWAYS_INLINE constexpr int source_shift(int64_t features) {
  int shift = 32;
  while ((int64_t{1} << (32 - shift)) < features) --shift;
  return shift;
}

// Bags alone don't tell a lookup's part of the gradient when it has a weight or must be a maximum.
MERLIN_ALWAYS_INLINE bool needs_position(const Pooling& p) {
  return p.weights || p.combiner == Combiner::kMax;
}

}  // namespace merlin
