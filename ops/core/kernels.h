// What is compiled once for each instruction set: loops over a range of bags or rows. The drivers
// (lookup.cc, gradient.cc, update.cc, initialize.cc) cut the work into ranges and call these.
#pragma once

#include <cstdint>

#include "rules.h"
#include "types.h"

namespace merlin {

enum class Isa { kBaseline, kAvx2, kAvx512 };

struct LookupTask {
  Table table;
  Pooling pooling;
  float* pooled;     // [B, D]
  int32_t* winners;  // [B, D], the position that gave each maximum, -1 for none; null unless kMax
  bool stream = false;  // whether `pooled`, aligned to 64 bytes then, is written past the caches
};

// The gradient that reaches one feature's lookups.
struct FeatureGradient {
  const float* pooled;     // [B, D]
  const float* scale;      // [B], what a lookup's gradient is divided by, inverted; null: 1
  const int32_t* bag_of;   // [N]; null: lookup n is bag n
  const float* weights;    // [N]; null: 1
  const int32_t* winners;  // [B, D]; null: every lookup has its part
};

struct TableGradient {
  Groups groups;
  const FeatureGradient* features;
  int64_t feature_count;
  int64_t dim;
  int shift;
  bool by_position;
};

struct UpdateTask {
  Table table;
  TableGradient gradient;
  float* slots[kMaxSlots];  // [R, D] each, then [R] each
  uint8_t* changed;         // [R]
  RuleId rule;
  CommonHyper common;
  const float* hyper;
};

struct WeightGradientTask {
  Table table;
  Pooling pooling;
  const float* gradient;    // [B, D]
  float* weight_gradients;  // [N]
};

enum class Distribution : int32_t { kConstant, kUniform, kNormal, kTruncatedNormal };

struct InitializeTask {
  Table table;          // with the number of rows to fill
  const int64_t* keys;  // [rows]; null: row r has key r
  const int64_t* into;  // [rows], distinct: where row r lies in the table; null: at r
  Distribution distribution;
  float first, second;  // value, -; low, high; mean, standard deviation
  uint64_t seed;        // of the table: mixes the user's seed and the table's name
};

struct Kernels {
  // Pools bags [begin, end); the first lookup whose line is not in the table, or -1.
  int64_t (*lookup)(const LookupTask&, int64_t begin, int64_t end);
  // Summed gradients of distinct rows [begin, end) into values [U, D].
  void (*values)(const TableGradient&, float* values, int64_t begin, int64_t end);
  // Applies the rule to distinct rows [begin, end).
  void (*update)(const UpdateTask&, int64_t begin, int64_t end);
  // Of bags [begin, end).
  void (*weight_gradient)(const WeightGradientTask&, int64_t begin, int64_t end);
  // Rows [begin, end).
  void (*initialize)(const InitializeTask&, int64_t begin, int64_t end);
};

// The best set that this processor runs (environment variable MERLIN_EMBEDDINGS_ISA = baseline,
// avx2 or avx512 asks for less).
const Kernels& kernels();

// A given set; null where the processor can't run it.
const Kernels* kernels(Isa isa);

}  // namespace merlin
