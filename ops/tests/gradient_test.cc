#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <tuple>

#include "tests/backward.h"

namespace merlin {
namespace {

constexpr int64_t kRows = 19;

std::vector<float> values_of(const Backward& backward, int64_t dim, const Parallel& parallel) {
  std::vector<float> out(backward.rows().size() * dim, NAN);
  values({{backward.gradient(), out.data()}}, parallel);
  return out;
}

// (row, feature, bag or position) of every lookup that has a row, by one lookup after the other.
std::multiset<std::tuple<int64_t, int64_t, int64_t>> naive_groups(
    const std::vector<Feature>& features, bool by_position) {
  std::multiset<std::tuple<int64_t, int64_t, int64_t>> all;
  for (size_t f = 0; f < features.size(); ++f)
    for (int64_t bag = 0; bag < features[f].bags(); ++bag)
      for (int64_t i = features[f].begin(bag); i < features[f].begin(bag + 1); ++i)
        if (features[f].lines[i] != kNoLine)
          all.insert({features[f].lines[i], f, by_position ? i : bag});
  return all;
}

TEST(Grouping, SortsRowsAndTheirSources) {
  Random random(1);
  for (int64_t rows : {1, 2, 23, 2048, 2049, 5'000'000})
    for (bool by_position : {false, true})
      for (int64_t feature_count : {1, 2, 3, 5}) {
        std::vector<Feature> features;
        for (int64_t f = 0; f < feature_count; ++f)
          features.push_back(random_feature(random, 200, 5, rows, Combiner::kSum,
                                            by_position && f + 1 == feature_count, f % 3));
        // No values are summed: the table needs no memory.
        std::vector<Pooling> poolings;
        for (const Feature& f : features) poolings.push_back(f.pooling());
        Grouping grouping(poolings.data(), feature_count, rows);
        grouping.sort(Serial());
        std::vector<int64_t> found(grouping.size());
        std::vector<int32_t> offsets(grouping.size() + 1);
        std::vector<uint32_t> sources(grouping.lookups());
        grouping.emit(Serial(), found.data(), offsets.data(), sources.data());

        const auto expected = naive_groups(features, by_position);
        ASSERT_EQ(sources.size(), expected.size());
        ASSERT_EQ(offsets.front(), 0);
        ASSERT_EQ(offsets.back(), static_cast<int32_t>(sources.size()));
        const int shift = source_shift(feature_count);
        std::multiset<std::tuple<int64_t, int64_t, int64_t>> actual;
        for (size_t u = 0; u < found.size(); ++u) {
          if (u > 0) {
            ASSERT_LT(found[u - 1], found[u]);
          }
          ASSERT_LT(offsets[u], offsets[u + 1]) << "a row without lookups";
          for (int32_t j = offsets[u]; j < offsets[u + 1]; ++j) {
            if (j > offsets[u]) {
              ASSERT_LE(sources[j - 1], sources[j]);
            }
            const uint64_t source = sources[j];
            actual.insert({found[u], source >> shift, source & ((uint64_t{1} << shift) - 1)});
          }
        }
        ASSERT_EQ(actual, expected);
      }
}

TEST(Grouping, ThreadsDoNotChangeIt) {
  // Enough lookups that eight threads get a chunk each.
  Random random(2);
  for (int64_t rows : {3, 3000, 40'000'000}) {
    const std::vector<Feature> features = {
        random_feature(random, 30'000, 8, rows, Combiner::kSum, false),
        random_feature(random, 90'000, 1, rows, Combiner::kSum, false, 1)};
    std::vector<Pooling> poolings = {features[0].pooling(), features[1].pooling()};
    std::vector<std::vector<int64_t>> all_rows;
    std::vector<std::vector<int32_t>> all_offsets;
    std::vector<std::vector<uint32_t>> all_sources;
    for (int threads : kThreadCounts) {
      const Threads parallel(threads);
      Grouping grouping(poolings.data(), 2, rows);
      grouping.sort(parallel);
      all_rows.emplace_back(grouping.size());
      all_offsets.emplace_back(grouping.size() + 1);
      all_sources.emplace_back(grouping.lookups());
      grouping.emit(parallel, all_rows.back().data(), all_offsets.back().data(),
                    all_sources.back().data());
      ASSERT_EQ(all_rows.back(), all_rows[0]) << threads;
      ASSERT_EQ(all_offsets.back(), all_offsets[0]) << threads;
      ASSERT_EQ(all_sources.back(), all_sources[0]) << threads;
    }
  }
}

TEST(Grouping, NothingIsValid) {
  Feature f;
  f.row_splits = {0, 0, 0};
  Storage table({1, 2}, 1, DType::kFloat32);
  for (const Feature& feature : {f, Feature{{-1, -1}, {0, 1, 2}, {}, 0, Combiner::kMean}}) {
    const std::vector<Feature> features = {feature};
    const std::vector<std::vector<float>> gradients = {{1, 1}};
    const Backward backward(features, table, gradients, Threads(2));
    EXPECT_TRUE(backward.rows().empty());
    EXPECT_TRUE(values_of(backward, 1, Threads(2)).empty());
  }
}

TEST(Grouping, WhatThirtyTwoBitsCannotNumberIsRefused) {
  // Only sizes are read before the refusal.
  Pooling huge = {nullptr, nullptr, nullptr, int64_t{1} << 32, int64_t{1} << 32, 1, Combiner::kSum};
  EXPECT_THROW(Grouping(&huge, 1, 10), std::length_error);
  Pooling small = {nullptr, nullptr, nullptr, 0, 0, 1, Combiner::kSum};
  EXPECT_THROW(Grouping(&small, 1, (int64_t{1} << 32) + 1), std::length_error);
  EXPECT_NO_THROW(Grouping(&small, 1, int64_t{1} << 32));
  // Two features leave 31 bits, three and four 30.
  const Pooling bags = {nullptr, nullptr, nullptr, 0, (int64_t{1} << 30) + 1, 0, Combiner::kSum};
  const std::vector<Pooling> many(3, bags);
  EXPECT_NO_THROW(Grouping(many.data(), 2, 10));
  EXPECT_THROW(Grouping(many.data(), 3, 10), std::length_error);
}

TEST(Gradient, SumsWhatReachesEachRow) {
  Random random(3);
  for (int64_t dim : kDims) {
    Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
    std::vector<Feature> kinds = all_kinds(random, 40, 5, kRows);
    std::vector<std::vector<Feature>> cases = {kinds, {kinds[0], kinds[0]}};
    for (const Feature& f : kinds) cases.push_back({f});
    for (const std::vector<Feature>& features : cases) {
      SCOPED_TRACE(features[0].name() + ", dim " + std::to_string(dim));
      const auto gradients = random_gradients(random, features, dim);
      const Backward backward(features, table, gradients, Serial());
      const std::vector<float> actual = values_of(backward, dim, Serial());
      std::vector<double> expected(kRows * dim);
      for (size_t f = 0; f < features.size(); ++f)
        naive_gradient(features[f], table, dim, gradients[f], &expected);
      std::vector<bool> seen(kRows);
      for (size_t u = 0; u < backward.rows().size(); ++u) {
        const int64_t row = backward.rows()[u];
        seen[row] = true;
        for (int64_t d = 0; d < dim; ++d)
          ASSERT_NEAR(actual[u * dim + d], expected[row * dim + d], 2e-4) << row << ", " << d;
      }
      for (int64_t i = 0; i < kRows * dim; ++i)
        if (!seen[i / dim]) {
          ASSERT_EQ(expected[i], 0);
        }
    }
  }
}

TEST(Gradient, ThreadsDoNotChangeABit) {
  Random random(4);
  for (int64_t dim : kDims) {
    constexpr int64_t kManyRows = 2000;
    Storage table(random.numbers(kManyRows * dim), dim, DType::kFloat32);
    const std::vector<Feature> kinds = all_kinds(random, 900, 4, kManyRows);
    for (const std::vector<Feature>& features : {kinds, std::vector<Feature>{kinds[0]}}) {
      const auto gradients = random_gradients(random, features, dim);
      const Backward backward(features, table, gradients, Serial());
      const std::vector<float> one = values_of(backward, dim, Serial());
      for (int threads : kThreadCounts) {
        const Backward again(features, table, gradients, Threads(threads));
        ASSERT_EQ(values_of(again, dim, Threads(threads)), one) << threads << ", dim " << dim;
      }
    }
  }
}

TEST(Gradient, InstructionSetsDoNotChangeABit) {
  Random random(5);
  for (int64_t dim : kDims) {
    Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
    const std::vector<Feature> kinds = all_kinds(random, 60, 4, kRows);
    for (const std::vector<Feature>& features : {kinds, std::vector<Feature>{kinds[0]}}) {
      const auto gradients = random_gradients(random, features, dim);
      const Backward backward(features, table, gradients, Serial());
      std::vector<std::vector<float>> results;
      for (Isa isa : instruction_sets()) {
        results.emplace_back(backward.rows().size() * dim);
        kernels(isa)->values(backward.gradient(), results.back().data(), 0,
                             backward.gradient().groups.size);
      }
      for (const auto& result : results) ASSERT_EQ(result, results[0]) << "dim " << dim;
    }
  }
}

// The gradient of weights is what central differences of the naive pooling give.
TEST(WeightGradient, IsTheSlopeOfThePooling) {
  Random random(6);
  for (int64_t dim : kDims)
    for (DType dtype : kDTypes) {
      Storage table(random.numbers(kRows * dim), dim, dtype);
      for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN})
        for (int64_t hotness : {0, 3}) {
          const Feature f = random_feature(random, 9, 4, kRows, combiner, true, hotness);
          SCOPED_TRACE(f.name() + ", dim " + std::to_string(dim));
          const std::vector<float> gradient = random.numbers(f.bags() * dim);
          std::vector<float> actual(f.lines.size(), NAN);
          weight_gradients({{table.table(), f.pooling(), gradient.data(), actual.data()}},
                           Serial());
          const auto loss = [&](size_t n, double shift) {
            std::vector<double> weights(f.weights.begin(), f.weights.end());
            weights[n] += shift;
            const Pooled pooled = naive_pool(f, table, dim, &weights);
            double sum = 0;
            for (size_t i = 0; i < gradient.size(); ++i) sum += gradient[i] * pooled.values[i];
            return sum;
          };
          for (size_t n = 0; n < f.lines.size(); ++n) {
            const double slope = (loss(n, 1e-5) - loss(n, -1e-5)) / 2e-5;
            ASSERT_NEAR(actual[n], slope, 2e-4 * (1 + std::fabs(slope))) << "lookup " << n;
            if (f.lines[n] == kNoLine) {
              ASSERT_EQ(actual[n], 0);
            }
          }
        }
    }
}

TEST(WeightGradient, ThreadsAndInstructionSetsDoNotChangeABit) {
  Random random(7);
  for (int64_t dim : kDims) {
    Storage table(random.numbers(kRows * dim), dim, DType::kFloat32);
    for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
      const Feature f = random_feature(random, 2000, 4, kRows, combiner, true);
      const std::vector<float> gradient = random.numbers(f.bags() * dim);
      std::vector<float> one(f.lines.size());
      weight_gradients({{table.table(), f.pooling(), gradient.data(), one.data()}}, Serial());
      for (int threads : kThreadCounts) {
        std::vector<float> many(f.lines.size());
        weight_gradients({{table.table(), f.pooling(), gradient.data(), many.data()}},
                         Threads(threads));
        ASSERT_EQ(many, one) << threads << " threads, dim " << dim;
      }
      for (Isa isa : instruction_sets()) {
        std::vector<float> other(f.lines.size());
        kernels(isa)->weight_gradient({table.table(), f.pooling(), gradient.data(), other.data()},
                                      0, f.bags());
        ASSERT_EQ(other, one) << "dim " << dim;
      }
    }
  }
}

}  // namespace
}  // namespace merlin
