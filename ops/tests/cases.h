// What the tests share: threads, random features and tables, and the naive computations, in double
// precision and one lookup after the other, that results are compared with.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/kernels.h"
#include "core/parallel.h"
#include "core/types.h"

namespace merlin {

// Around every specialised width, and widths that no vector divides.
inline const std::vector<int64_t> kDims = {1, 3, 7, 16, 17, 32, 64, 100, 128, 130};
inline const std::vector<DType> kDTypes = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
inline const std::vector<int> kThreadCounts = {1, 2, 3, 8};

class Threads final : public Parallel {
 public:
  explicit Threads(int count) : count_(count) {}
  int threads() const override { return count_; }
  void run(int64_t tasks, const std::function<void(int64_t)>& task) const override {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> workers;
    for (int w = 0; w < count_; ++w)
      workers.emplace_back([&] {
        for (int64_t i; (i = next++) < tasks;) task(i);
      });
    for (std::thread& worker : workers) worker.join();
  }

 private:
  int count_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(engine_() % bound); }
  // Multiples of 1/64 in [-1, 1]: bfloat16 and float16 hold them exactly.
  float number() { return static_cast<float>(below(129) - 64) / 64; }
  std::vector<float> numbers(int64_t count) {
    std::vector<float> all(count);
    for (float& x : all) x = number();
    return all;
  }

 private:
  std::mt19937_64 engine_;
};

// IEEE 754 by its definition: sign, exponent, fraction. Bfloat16 has 8 bits of exponent, float16 5.
inline double widen(uint16_t x, DType dtype) {
  const int exponent_bits = dtype == DType::kBfloat16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = (x >> fraction_bits) & top, fraction = x & ((1 << fraction_bits) - 1);
  double magnitude;
  if (exponent == top)
    magnitude = fraction == 0 ? HUGE_VAL : std::nan("");
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, 1 - bias - fraction_bits);
  else
    magnitude = std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return std::copysign(magnitude, (x & 0x8000) != 0 ? -1.0 : 1.0);
}

// Rows at rest. `values` must be exact in the type.
class Storage {
 public:
  Storage(const std::vector<float>& values, int64_t dim, DType dtype)
      : bytes_(values.size() * size_of(dtype)), dim_(dim), dtype_(dtype) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kFloat32) {
        std::memcpy(&bytes_[4 * i], &values[i], 4);
      } else {
        const uint16_t half = exact_half(values[i], dtype);
        std::memcpy(&bytes_[2 * i], &half, 2);
      }
    }
  }
  Table table() {
    return {bytes_.data(), static_cast<int64_t>(bytes_.size()) / (dim_ * size_of(dtype_)), dim_,
            dtype_};
  }
  double at(int64_t i) const {
    if (dtype_ == DType::kFloat32) {
      float x;
      std::memcpy(&x, &bytes_[4 * i], 4);
      return x;
    }
    uint16_t x;
    std::memcpy(&x, &bytes_[2 * i], 2);
    return widen(x, dtype_);
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  static uint16_t exact_half(float value, DType dtype) {
    if (value == 0) return 0;
    const int bias = dtype == DType::kBfloat16 ? 127 : 15;
    const int fraction_bits = dtype == DType::kBfloat16 ? 7 : 10;
    int exponent;
    const double mantissa = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
    const int fraction = static_cast<int>(std::ldexp(mantissa, fraction_bits + 1));
    const int biased = exponent - 1 + bias;
    return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | biased << fraction_bits |
                                 (fraction & ((1 << fraction_bits) - 1)));
  }

  std::vector<char> bytes_;
  int64_t dim_;
  DType dtype_;
};

// One feature that owns its arrays.
struct Feature {
  std::vector<int64_t> lines;       // [N]
  std::vector<int64_t> row_splits;  // [B + 1], or empty: hotness
  std::vector<float> weights;       // [N], or empty
  int64_t hotness = 0;
  Combiner combiner = Combiner::kSum;

  int64_t bags() const {
    return row_splits.empty() ? static_cast<int64_t>(lines.size()) / hotness
                              : static_cast<int64_t>(row_splits.size()) - 1;
  }
  int64_t begin(int64_t bag) const { return row_splits.empty() ? bag * hotness : row_splits[bag]; }
  Pooling pooling() const {
    return {lines.data(),
            row_splits.empty() ? nullptr : row_splits.data(),
            weights.empty() ? nullptr : weights.data(),
            static_cast<int64_t>(lines.size()),
            bags(),
            hotness,
            combiner};
  }
  std::string name() const {
    static const char* const kNames[] = {"sum", "mean", "sqrtn", "max"};
    return std::string(kNames[static_cast<int>(combiner)]) + (weights.empty() ? "" : " weighted") +
           (row_splits.empty() ? " hotness " + std::to_string(hotness) : " ragged");
  }
};

// Bags of 0 to `longest` lookups; some lines are kNoLine, and few rows make many duplicates.
inline Feature random_feature(Random& random, int64_t bags, int64_t longest, int64_t rows,
                              Combiner combiner, bool weighted, int64_t hotness = 0) {
  Feature f;
  f.combiner = combiner;
  f.hotness = hotness;
  if (hotness == 0) f.row_splits.push_back(0);
  for (int64_t bag = 0; bag < bags; ++bag) {
    for (int64_t n = hotness > 0 ? hotness : random.below(longest + 1); n > 0; --n) {
      f.lines.push_back(random.below(rows + 1) - 1);
      if (weighted) f.weights.push_back(1.25f + random.number());
    }
    if (hotness == 0) f.row_splits.push_back(static_cast<int64_t>(f.lines.size()));
  }
  return f;
}

// Every combiner, with weights where it takes them, over ragged bags and over equal ones.
inline std::vector<Feature> all_kinds(Random& random, int64_t bags, int64_t longest, int64_t rows) {
  std::vector<Feature> all;
  for (Combiner c : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN, Combiner::kMax})
    for (bool weighted : {false, true})
      for (int64_t hotness : {0, 1, 3})
        if (!(weighted && c == Combiner::kMax))
          all.push_back(random_feature(random, bags, longest, rows, c, weighted, hotness));
  return all;
}

struct Pooled {
  std::vector<double> values;    // [B, D]
  std::vector<int32_t> winners;  // [B, D], of max
  std::vector<double> divisors;  // [B], 1 for sum and max, 0 where nothing is divided
};

// `weights` stand in for the feature's own when given: double, for differences.
inline Pooled naive_pool(const Feature& f, const Storage& table, int64_t dim,
                         const std::vector<double>* weights = nullptr) {
  Pooled out{std::vector<double>(f.bags() * dim), std::vector<int32_t>(f.bags() * dim, -1),
             std::vector<double>(f.bags(), 1)};
  for (int64_t bag = 0; bag < f.bags(); ++bag) {
    double total = 0, squares = 0;
    for (int64_t i = f.begin(bag); i < f.begin(bag + 1); ++i) {
      if (f.lines[i] == kNoLine) continue;
      const double w = weights != nullptr ? (*weights)[i] : f.weights.empty() ? 1 : f.weights[i];
      total += w;
      squares += w * w;
      for (int64_t d = 0; d < dim; ++d) {
        double& to = out.values[bag * dim + d];
        int32_t& winner = out.winners[bag * dim + d];
        const double x = table.at(f.lines[i] * dim + d);
        if (f.combiner != Combiner::kMax) {
          to += w * x;
        } else if (winner < 0 || x > to) {
          to = x;
          winner = static_cast<int32_t>(i);
        }
      }
    }
    if (f.combiner == Combiner::kMean) out.divisors[bag] = total;
    if (f.combiner == Combiner::kSqrtN) out.divisors[bag] = std::sqrt(squares);
    for (int64_t d = 0; d < dim; ++d) {
      double& to = out.values[bag * dim + d];
      to = out.divisors[bag] != 0 ? to / out.divisors[bag] : 0;
    }
  }
  return out;
}

// Adds what reaches each row of the table [R, D] to `sum`, given the gradient of the pooled [B, D].
inline void naive_gradient(const Feature& f, const Storage& table, int64_t dim,
                           const std::vector<float>& pooled_gradient, std::vector<double>* sum) {
  const Pooled pooled = naive_pool(f, table, dim);
  for (int64_t bag = 0; bag < f.bags(); ++bag)
    for (int64_t i = f.begin(bag); i < f.begin(bag + 1); ++i) {
      if (f.lines[i] == kNoLine || pooled.divisors[bag] == 0) continue;
      const double w = f.weights.empty() ? 1 : f.weights[i];
      for (int64_t d = 0; d < dim; ++d)
        if (f.combiner != Combiner::kMax || pooled.winners[bag * dim + d] == i)
          (*sum)[f.lines[i] * dim + d] += w * pooled_gradient[bag * dim + d] / pooled.divisors[bag];
    }
}

inline std::vector<Isa> instruction_sets() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})
    if (kernels(isa) != nullptr) all.push_back(isa);
  return all;
}

}  // namespace merlin
