#include "core/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace merlin {
namespace {

// XXH64 of any bytes shorter than 32, word for word as the specification has it.
uint64_t reference(const std::vector<uint8_t>& bytes, uint64_t seed) {
  const uint64_t p1 = 11400714785074694791u, p2 = 14029467366897019727u, p3 = 1609587929392839161u,
                 p4 = 9650029242287828579u, p5 = 2870177450012600261u;
  const auto turn = [](uint64_t x, int n) { return x << n | x >> (64 - n); };
  const auto read = [&](size_t at, int count) {
    uint64_t word = 0;
    for (int i = 0; i < count; ++i) word |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
    return word;
  };
  uint64_t acc = seed + p5;
  acc += bytes.size();
  size_t at = 0;
  for (; bytes.size() - at >= 8; at += 8) {
    uint64_t lane = read(at, 8) * p2;
    lane = turn(lane, 31);
    lane *= p1;
    acc ^= lane;
    acc = turn(acc, 27) * p1;
    acc += p4;
  }
  if (bytes.size() - at >= 4) {
    acc ^= read(at, 4) * p1;
    acc = turn(acc, 23) * p2;
    acc += p3;
    at += 4;
  }
  for (; at < bytes.size(); ++at) {
    acc ^= bytes[at] * p5;
    acc = turn(acc, 11) * p1;
  }
  acc ^= acc >> 33;
  acc *= p2;
  acc ^= acc >> 29;
  acc *= p3;
  acc ^= acc >> 32;
  return acc;
}

std::vector<uint8_t> bytes_of(uint64_t id) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(id >> (8 * i));
  return bytes;
}

TEST(Hash, TheReferenceGivesWhatIsPublished) {
  EXPECT_EQ(reference({}, 0), 0xef46db3751d8e999u);
  EXPECT_EQ(reference({'a'}, 0), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(reference({'a', 'b', 'c'}, 0), 0x44bc2cf5ad770999u);
}

TEST(Hash, IsXxh64OfTheIdsBytes) {
  for (uint64_t id : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{12345}})
    for (uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}})
      EXPECT_EQ(xxh64(id, seed), reference(bytes_of(id), seed)) << id << " " << seed;
}

TEST(Hash, ScaledCoversAllOfItsRange) {
  EXPECT_EQ(scaled(0, 10), 0);
  EXPECT_EQ(scaled(~uint64_t{0}, 10), 9);
  EXPECT_EQ(scaled(~uint64_t{0}, 1), 0);
  EXPECT_EQ(scaled(~uint64_t{0}, (uint64_t{1} << 63) - 1), INT64_MAX - 1);
  EXPECT_EQ(scaled(uint64_t{1} << 63, 10), 5);
}

// 100,000 ids in 1,000 rows: chi squared of 999 degrees of freedom is above 1,145 in one of a
// thousand right samples. Ids one after the other and ids far apart, under two salts.
TEST(Hash, SpreadsIdsEvenly) {
  for (uint64_t step : {uint64_t{1}, uint64_t{1} << 32, uint64_t{1000}})
    for (uint64_t salt : {0, 1}) {
      std::vector<int> counts(1000);
      for (uint64_t i = 0; i < 100000; ++i) ++counts[scaled(xxh64(i * step, salt), 1000)];
      double chi = 0;
      for (int count : counts) chi += (count - 100.0) * (count - 100.0) / 100;
      EXPECT_LT(chi, 1145) << step << " " << salt;
    }
}

TEST(Hash, SaltsAndNumbersAreIndependent) {
  int same = 0, same_numbers = 0;
  for (uint64_t id = 0; id < 100000; ++id) {
    same += scaled(xxh64(id, 0), 100) == scaled(xxh64(id, 1), 100);
    same_numbers += scaled(xxh64(id, seed_of(0, 5)), 100) == scaled(xxh64(id, seed_of(1, 5)), 100);
  }
  // 1,000 on average, standard deviation 31.5.
  EXPECT_NEAR(same, 1000, 160);
  EXPECT_NEAR(same_numbers, 1000, 160);
}

}  // namespace
}  // namespace merlin
