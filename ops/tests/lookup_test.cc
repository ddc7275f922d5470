#include <gtest/gtest.h>

#include "core/drivers.h"
#include "tests/cases.h"

namespace merlin {
namespace {

constexpr int64_t kRows = 23;

struct Output {
  std::vector<float> pooled;
  std::vector<int32_t> winners;
  BadLine bad;
};

Output run(const Feature& f, Storage& table, const Parallel& parallel) {
  const int64_t size = f.bags() * table.table().dim;
  Output out{std::vector<float>(size, NAN), std::vector<int32_t>(size, -7), {}};
  int32_t* winners = f.combiner == Combiner::kMax ? out.winners.data() : nullptr;
  out.bad = lookup({{table.table(), f.pooling(), out.pooled.data(), winners}}, parallel);
  return out;
}

TEST(Lookup, PoolsEveryKindAsTheNaiveSum) {
  Random random(1);
  for (int64_t dim : kDims) {
    for (DType dtype : kDTypes) {
      Storage table(random.numbers(kRows * dim), dim, dtype);
      for (const Feature& f : all_kinds(random, 37, 6, kRows)) {
        SCOPED_TRACE(f.name() + ", dim " + std::to_string(dim));
        const Pooled expected = naive_pool(f, table, dim);
        const Output actual = run(f, table, Serial());
        EXPECT_EQ(actual.bad.task, -1);
        for (size_t i = 0; i < expected.values.size(); ++i)
          ASSERT_NEAR(actual.pooled[i], expected.values[i], 2e-6) << "element " << i;
        if (f.combiner == Combiner::kMax) {
          ASSERT_EQ(actual.winners, expected.winners);
        }
      }
    }
  }
}

TEST(Lookup, SumsOfLongBagsAreExactWhereFloatsAre) {
  for (int64_t dim : {16, 17}) {
    // 1/64ths below 1: a sum of 5,000 of them is exact.
    Random random(2);
    Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
    const Feature f = random_feature(random, 3, 5000, kRows, Combiner::kSum, false);
    const Pooled expected = naive_pool(f, table, dim);
    const Output actual = run(f, table, Serial());
    for (size_t i = 0; i < expected.values.size(); ++i)
      ASSERT_EQ(actual.pooled[i], expected.values[i]);
  }
}

TEST(Lookup, BagsWithoutVectorsAreZeros) {
  for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN, Combiner::kMax})
    for (int64_t dim : kDims) {
      Storage table(std::vector<float>(kRows * dim, 1), dim, DType::kFloat32);
      Feature f;
      f.lines = {-1, -1, 4};
      f.row_splits = {0, 0, 2, 2, 3, 3};
      f.combiner = combiner;
      const Output out = run(f, table, Serial());
      for (int64_t i = 0; i < 5 * dim; ++i) ASSERT_EQ(out.pooled[i], i / dim == 3 ? 1 : 0);
    }
}

TEST(Lookup, WeightsThatSumToZeroGiveZeros) {
  Storage table({1, 2, 3}, 1, DType::kFloat32);
  Feature f;
  f.lines = {0, 2};
  f.weights = {0, 0};
  f.row_splits = {0, 2};
  for (Combiner combiner : {Combiner::kMean, Combiner::kSqrtN}) {
    f.combiner = combiner;
    EXPECT_EQ(run(f, table, Serial()).pooled[0], 0);
  }
}

TEST(Lookup, TheFirstOfEqualMaximaWins) {
  Storage table({-3, -3, -5}, 1, DType::kFloat32);
  Feature f;
  f.lines = {2, -1, 1, 0};
  f.row_splits = {0, 4};
  f.combiner = Combiner::kMax;
  const Output out = run(f, table, Serial());
  EXPECT_EQ(out.pooled[0], -3);
  EXPECT_EQ(out.winners[0], 2);
}

TEST(Lookup, EmptyBatchesAndNoTasksAreValid) {
  Storage table({1, 2}, 2, DType::kFloat32);
  Feature f;
  f.row_splits = {0};
  EXPECT_EQ(run(f, table, Threads(2)).bad.task, -1);
  EXPECT_EQ(lookup({}, Threads(2)).task, -1);
}

TEST(Lookup, TheFirstLineOutsideItsTableIsNamed) {
  Random random(3);
  for (int64_t dim : {5, 16})
    for (int64_t wrong : {kRows, int64_t{-2}, INT64_MAX, INT64_MIN})
      for (Combiner combiner : {Combiner::kSum, Combiner::kMax}) {
        Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
        const Feature good = random_feature(random, 9000, 4, kRows, combiner, false);
        Feature bad = good;
        const int64_t first = static_cast<int64_t>(bad.lines.size()) / 2;
        bad.lines[first] = bad.lines[first + 9] = bad.lines.back() = wrong;
        std::vector<float> pooled(good.bags() * dim), other(good.bags() * dim);
        std::vector<int32_t> winners(good.bags() * dim), more(good.bags() * dim);
        for (int threads : kThreadCounts) {
          const BadLine found =
              lookup({{table.table(), good.pooling(), pooled.data(), winners.data()},
                      {table.table(), bad.pooling(), other.data(), more.data()}},
                     Threads(threads));
          EXPECT_EQ(found.task, 1);
          EXPECT_EQ(found.position, first);
        }
      }
}

TEST(Lookup, ThreadsDoNotChangeABit) {
  Random random(4);
  for (int64_t dim : kDims)
    // As many bags as it takes for threads to be used.
    for (const Feature& f : all_kinds(random, (1 << 17) / dim, 5, kRows)) {
      SCOPED_TRACE(f.name() + ", dim " + std::to_string(dim));
      Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
      const Output one = run(f, table, Serial());
      for (int threads : kThreadCounts) {
        const Output many = run(f, table, Threads(threads));
        ASSERT_EQ(many.pooled, one.pooled) << threads << " threads";
        ASSERT_EQ(many.winners, one.winners) << threads << " threads";
      }
    }
}

TEST(Lookup, InstructionSetsDoNotChangeABit) {
  Random random(5);
  for (int64_t dim : kDims)
    for (DType dtype : kDTypes) {
      Storage table(random.numbers(kRows * dim), dim, dtype);
      for (const Feature& f : all_kinds(random, 50, 7, kRows)) {
        SCOPED_TRACE(f.name() + ", dim " + std::to_string(dim));
        std::vector<std::vector<float>> results;
        for (Isa isa : instruction_sets()) {
          std::vector<float> pooled(f.bags() * dim);
          std::vector<int32_t> winners(f.bags() * dim);
          kernels(isa)->lookup({table.table(), f.pooling(), pooled.data(), winners.data()}, 0,
                               f.bags());
          results.push_back(pooled);
        }
        for (const auto& result : results) ASSERT_EQ(result, results[0]);
      }
    }
}

// 64 bytes are a cache line, the alignment that such stores need.
TEST(Lookup, OutputWrittenPastTheCachesIsTheSame) {
  Random random(6);
  for (int64_t dim : kDims)
    for (const Feature& f : all_kinds(random, 50, 7, kRows)) {
      SCOPED_TRACE(f.name() + ", dim " + std::to_string(dim));
      Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
      const Output expected = run(f, table, Serial());
      const int64_t size = f.bags() * dim;
      std::vector<float> memory(size + 16, NAN);
      std::vector<int32_t> winners(size);
      float* aligned = memory.data();
      while (reinterpret_cast<uintptr_t>(aligned) % 64) ++aligned;
      for (Isa isa : instruction_sets()) {
        std::fill(memory.begin(), memory.end(), NAN);
        kernels(isa)->lookup({table.table(), f.pooling(), aligned, winners.data(), true}, 0,
                             f.bags());
        for (int64_t i = 0; i < size; ++i) ASSERT_EQ(aligned[i], expected.pooled[i]) << i;
      }
    }
}

TEST(Lookup, LargeOutputsAreWrittenWhereverTheyLie) {
  constexpr int64_t dim = 64, bags = 70'000;  // 17 MiB
  Random random(7);
  Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
  Feature f;
  f.hotness = 1;
  for (int64_t b = 0; b < bags; ++b) f.lines.push_back(b % kRows);
  std::vector<float> memory(bags * dim + 32);
  float* aligned = memory.data();
  while (reinterpret_cast<uintptr_t>(aligned) % 64) ++aligned;
  const float* rows = static_cast<const float*>(table.table().data);
  for (float* out : {aligned, aligned + 1}) {
    std::fill(memory.begin(), memory.end(), NAN);
    lookup({{table.table(), f.pooling(), out, nullptr}}, Threads(2));
    for (int64_t i = 0; i < bags * dim; ++i)
      ASSERT_EQ(out[i], rows[i / dim % kRows * dim + i % dim]) << i;
  }
}

TEST(Lookup, SplitsThatFallOrOverrunAreFound) {
  Feature f;
  f.lines = {0, 1, 2, 3};
  f.row_splits = {0, 2, 4};
  EXPECT_EQ(bad_split(f.pooling()), -1);
  f.row_splits = {0, 4, 4};
  EXPECT_EQ(bad_split(f.pooling()), -1);
  f.row_splits = {1, 2, 4};
  EXPECT_EQ(bad_split(f.pooling()), 0);
  f.row_splits = {0, 3, 2, 4};
  EXPECT_EQ(bad_split(f.pooling()), 2);
  f.row_splits = {0, 5, 4};
  EXPECT_EQ(bad_split(f.pooling()), 1);
  f.row_splits = {0, 2, 3};
  EXPECT_EQ(bad_split(f.pooling()), 2);
  f.row_splits = {0, -1, 4};
  EXPECT_EQ(bad_split(f.pooling()), 1);
}

TEST(Lookup, WeightsThatAreNotFiniteAreFound) {
  Feature f;
  f.lines = {0, 1, 2};
  f.row_splits = {0, 3};
  EXPECT_EQ(bad_weight(f.pooling()), -1);
  f.weights = {1, 0, -1};
  EXPECT_EQ(bad_weight(f.pooling()), -1);
  f.weights = {1, INFINITY, NAN};
  EXPECT_EQ(bad_weight(f.pooling()), 1);
  f.weights = {1, 1, NAN};
  EXPECT_EQ(bad_weight(f.pooling()), 2);
}

// Every half there is, alone and in a vector.
TEST(Lookup, HalvesWidenExactly) {
  for (DType dtype : {DType::kBfloat16, DType::kFloat16})
    for (int64_t dim : {1, 16}) {
      std::vector<uint16_t> halves(1 << 16);
      for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
      Feature f;
      f.hotness = 1;
      for (int64_t row = 0; row < (1 << 16) / dim; ++row) f.lines.push_back(row);
      for (Isa isa : instruction_sets()) {
        std::vector<float> pooled(halves.size());
        const Table table{halves.data(), (1 << 16) / dim, dim, dtype};
        kernels(isa)->lookup({table, f.pooling(), pooled.data(), nullptr}, 0, f.bags());
        for (size_t i = 0; i < halves.size(); ++i) {
          const double expected = widen(halves[i], dtype);
          if (std::isnan(expected))
            ASSERT_TRUE(std::isnan(pooled[i])) << i;
          else
            ASSERT_EQ(pooled[i], expected) << i;
        }
      }
    }
}

}  // namespace
}  // namespace merlin
