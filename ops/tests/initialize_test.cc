#include <gtest/gtest.h>

#include "core/drivers.h"
#include "tests/cases.h"

namespace merlin {
namespace {

std::vector<char> bytes_of(int64_t rows, int64_t dim, DType dtype, Distribution distribution,
                           float first, float second, uint64_t seed, const int64_t* keys,
                           const Parallel& parallel) {
  std::vector<char> out(rows * dim * size_of(dtype));
  initialize({{out.data(), rows, dim, dtype}, keys, nullptr, distribution, first, second, seed},
             parallel);
  return out;
}

std::vector<float> floats_of(int64_t rows, int64_t dim, Distribution distribution, float first,
                             float second, uint64_t seed, const int64_t* keys = nullptr) {
  std::vector<float> out(rows * dim);
  initialize(
      {{out.data(), rows, dim, DType::kFloat32}, keys, nullptr, distribution, first, second, seed},
      Serial());
  return out;
}

double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The largest distance between the distribution of the values and the one they should have
// (Kolmogorov and Smirnov), times sqrt(n): above 1.95 in one of a thousand right samples.
double distance(std::vector<float> values, const std::function<double(double)>& below) {
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = below(values[i]);
    most = std::max({most, p - i / n, (i + 1) / n - p});
  }
  return most * std::sqrt(n);
}

TEST(Initialize, UniformIsUniform) {
  const std::vector<float> x = floats_of(5000, 20, Distribution::kUniform, -0.25f, 0.75f, 1);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -0.25f);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 0.75f);
  EXPECT_LT(distance(x, [](double v) { return v + 0.25; }), 1.95);
}

TEST(Initialize, NormalIsNormal) {
  const std::vector<float> x = floats_of(5000, 20, Distribution::kNormal, 1, 0.5f, 2);
  EXPECT_LT(distance(x, [](double v) { return normal_below((v - 1) / 0.5); }), 1.95);
  // Of 100,000, some lie beyond four standard deviations and none beyond six.
  const float most = std::fabs(*std::max_element(x.begin(), x.end()) - 1) / 0.5f;
  EXPECT_GT(most, 3.5f);
  EXPECT_LT(most, 6.0f);
}

TEST(Initialize, TruncatedNormalIsCutAtTwoDeviations) {
  const std::vector<float> x = floats_of(5000, 20, Distribution::kTruncatedNormal, 1, 0.5f, 3);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), 0);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 2);
  const double low = normal_below(-2), share = 1 - 2 * low;
  const auto below = [&](double v) { return (normal_below((v - 1) / 0.5) - low) / share; };
  EXPECT_LT(distance(x, below), 1.95);
}

TEST(Initialize, ColumnsRowsAndSeedsAreIndependent) {
  const int64_t rows = 20'000, dim = 4;
  const auto a = floats_of(rows, dim, Distribution::kNormal, 0, 1, 4);
  const auto b = floats_of(rows, dim, Distribution::kNormal, 0, 1, 5);
  const auto correlation = [&](const std::function<double(int64_t)>& x,
                               const std::function<double(int64_t)>& y) {
    double sum = 0;
    for (int64_t r = 0; r + 1 < rows; ++r) sum += x(r) * y(r);
    return std::fabs(sum) / std::sqrt(static_cast<double>(rows));
  };
  const auto column = [&](int64_t d) { return [&a, d](int64_t r) { return a[r * dim + d]; }; };
  for (int64_t d = 1; d < dim; ++d) EXPECT_LT(correlation(column(0), column(d)), 4);
  EXPECT_LT(correlation(column(0), [&](int64_t r) { return a[(r + 1) * dim]; }), 4);
  EXPECT_LT(correlation(column(0), [&](int64_t r) { return b[r * dim]; }), 4);
}

TEST(Initialize, AValueDependsOnItsKeyAlone) {
  const int64_t dim = 17, rows = 300;
  for (Distribution kind : {Distribution::kUniform, Distribution::kNormal}) {
    const auto table = floats_of(rows, dim, kind, -1, 1, 6);
    const std::vector<int64_t> keys = {299, 0, 7, 7, 123};
    const auto some = floats_of(5, dim, kind, -1, 1, 6, keys.data());
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t d = 0; d < dim; ++d) EXPECT_EQ(some[r * dim + d], table[keys[r] * dim + d]);
    // Any 64 bits are a key.
    const std::vector<int64_t> extreme = {INT64_MIN, INT64_MAX, -1, 0, int64_t{1} << 32};
    const auto far = floats_of(5, 1, kind, -1, 1, 6, extreme.data());
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < i; ++j) EXPECT_NE(far[i], far[j]);
  }
}

TEST(Initialize, ThreadsAndInstructionSetsDoNotChangeABit) {
  for (int64_t dim : kDims)
    for (DType dtype : kDTypes)
      for (Distribution kind : {Distribution::kConstant, Distribution::kUniform,
                                Distribution::kNormal, Distribution::kTruncatedNormal}) {
        const int64_t rows = 20'000 / dim;
        const auto one = bytes_of(rows, dim, dtype, kind, 0.5f, 1, 7, nullptr, Serial());
        for (int threads : kThreadCounts)
          ASSERT_EQ(bytes_of(rows, dim, dtype, kind, 0.5f, 1, 7, nullptr, Threads(threads)), one);
        for (Isa isa : instruction_sets()) {
          std::vector<char> other(one.size());
          kernels(isa)->initialize(
              {{other.data(), rows, dim, dtype}, nullptr, nullptr, kind, 0.5f, 1, 7}, 0, rows);
          ASSERT_EQ(other, one);
        }
      }
}

// The halves around a number that lies between two: the nearer one, and the even one when both are
// as near.
TEST(Initialize, ConstantsRoundToTheNearestHalf) {
  for (DType dtype : {DType::kBfloat16, DType::kFloat16}) {
    const uint16_t infinite = dtype == DType::kBfloat16 ? 0x7f80 : 0x7c00;
    const auto narrow = [&](Isa isa, float x) {
      uint16_t half;
      kernels(isa)->initialize(
          {{&half, 1, 1, dtype}, nullptr, nullptr, Distribution::kConstant, x, 0, 0}, 0, 1);
      return half;
    };
    for (Isa isa : instruction_sets()) {
      for (uint32_t h = 0; h + 1 < infinite; ++h) {
        const uint16_t low = static_cast<uint16_t>(h), high = static_cast<uint16_t>(h + 1);
        const double a = widen(low, dtype), b = widen(high, dtype);
        const float middle = static_cast<float>((a + b) / 2);
        ASSERT_EQ(narrow(isa, static_cast<float>(a)), low);
        ASSERT_EQ(narrow(isa, -static_cast<float>(a)), low | 0x8000);
        ASSERT_EQ(narrow(isa, middle), h % 2 == 0 ? low : high) << h;
        ASSERT_EQ(narrow(isa, std::nextafter(middle, -1.0f)), low) << h;
        ASSERT_EQ(narrow(isa, std::nextafter(middle, INFINITY)), high) << h;
      }
      ASSERT_EQ(narrow(isa, INFINITY), infinite);
      ASSERT_EQ(narrow(isa, -INFINITY), infinite | 0x8000);
      ASSERT_EQ(narrow(isa, 3.4e38f), infinite);
      ASSERT_TRUE(std::isnan(widen(narrow(isa, NAN), dtype)));
    }
  }
}

}  // namespace
}  // namespace merlin
