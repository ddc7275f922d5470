// What is done to an id table on demand, and what its arithmetic comes to.
#include <gtest/gtest.h>

#include "core/counting_filter.h"
#include "tests/id_oracle.h"

namespace merlin {
namespace {

std::vector<int64_t> numbers(int64_t from, int64_t count) {
  std::vector<int64_t> all(count);
  for (int64_t i = 0; i < count; ++i) all[i] = from + i;
  return all;
}

std::vector<int64_t> give(const IdTable& table, const IdPolicy& policy, std::vector<int64_t> ids,
                          std::vector<int64_t> counts = {}, IdChanges* changes = nullptr) {
  std::vector<int64_t> rows(ids.size());
  const IdList list = {ids.data(),
                       counts.empty() ? nullptr : counts.data(),
                       policy.kind == PolicyKind::kCustom ? counts.data() : nullptr,
                       static_cast<int64_t>(ids.size()),
                       false,
                       0,
                       rows.data()};
  IdChanges unused;
  EXPECT_EQ(assign(table, policy, &list, 1, Serial(), changes ? changes : &unused).kind,
            IdTrouble::kNone);
  return rows;
}

std::vector<int64_t> found(const IdTable& table, std::vector<int64_t> ids) {
  std::vector<int64_t> rows(ids.size());
  const IdList list = {ids.data(), nullptr, nullptr,    static_cast<int64_t>(ids.size()),
                       false,      0,       rows.data()};
  find(table, IdPolicy(), &list, 1, Serial());
  return rows;
}

TEST(IdTableShape, RoundsUpAndLeavesRoom) {
  for (int64_t capacity : {1, 15, 16, 17, 100, 16384, 20000, 1000000, 123456789}) {
    const IdShape s = managed_shape(capacity, 3);
    EXPECT_GE(s.slots, capacity);
    EXPECT_LT(s.slots, capacity + s.shards * kBucket);
    if (capacity > 2048) {
      EXPECT_LT(s.slots, capacity * (1 + 1. / 64));
    }
    EXPECT_EQ(s.slots, s.shards * s.buckets * kBucket);
    EXPECT_GE(s.filter_size(), 4 * s.slots);
    // Tag, key, score, pin and filter of a slot.
    EXPECT_LE((1 + 8 + 4 + 2) * s.slots + s.filter_size(), 20 * s.slots);
    EXPECT_EQ(managed_shape(capacity, 1).filter_lines, 0);
  }
  for (int64_t most : {1, 100, 1000000}) {
    const IdShape s = dynamic_shape(1, most);
    EXPECT_GE(3 * s.slots, 5 * most);
    EXPECT_EQ(s.max_rows, most);
    EXPECT_EQ(s.buckets % s.initial, 0);
  }
}

// In one call they come in the order of their hashes, which fills buckets least evenly.
TEST(IdTable, DynamicHasRoomForAllOfItsIds) {
  for (int64_t most : {1, 17, 300, 5000, 70000, 1000000}) {
    const IdShape shape = dynamic_shape(most, most);
    IdMemory memory(shape, true);
    const IdTable table = memory.table();
    IdPolicy policy;
    policy.evict = false;
    const std::vector<int64_t> rows = give(table, policy, numbers(0, most));
    ASSERT_EQ(table.meters[kOverflowed], 0);
    ASSERT_EQ(table.meters[kUsed], most);
    ASSERT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), static_cast<size_t>(most));
  }
}

// Ids made up to fall into the same two buckets, 32 of which fill them: for the next ones others
// move out, and when none can there is an error, and none of that call has a row.
TEST(IdTable, CrowdedBucketsMakeRoomOrSaySo) {
  const IdShape shape = dynamic_shape(300, 300);
  IdMemory memory(shape, true);
  const IdTable table = memory.table();
  IdPolicy policy;
  policy.evict = false;
  const IdOracle places(shape, policy, true);
  const auto wanted = places.buckets_of(0);
  ASSERT_NE(wanted.first, wanted.second);
  std::vector<int64_t> both, one;
  for (int64_t id = 0; both.size() < 33; ++id) {
    const auto [first, second] = places.buckets_of(id);
    if (std::set<int64_t>{first, second} == std::set<int64_t>{wanted.first, wanted.second})
      both.push_back(id);
    else if ((first == wanted.first) != (second == wanted.first) && one.size() < 8)
      one.push_back(id);
  }
  // Eight that can move are there first; the rest have nowhere else to go.
  give(table, policy, one);
  give(table, policy, {both.begin(), both.begin() + 32});
  ASSERT_EQ(table.meters[kUsed], 40);
  for (const std::vector<int64_t>& ids :
       {one, std::vector<int64_t>(both.begin(), both.begin() + 32)}) {
    const std::vector<int64_t> rows = found(table, ids);
    ASSERT_GE(*std::min_element(rows.begin(), rows.end()), 0);
  }
  const IdMemory before = memory;
  const std::vector<int64_t> last = {both[32], int64_t{1} << 40};
  std::vector<int64_t> rows(2);
  const IdList list = {last.data(), nullptr, nullptr, 2, false, 0, rows.data()};
  IdChanges changes;
  const IdTrouble trouble = assign(table, policy, &list, 1, Serial(), &changes);
  ASSERT_EQ(trouble.kind, IdTrouble::kCrowded);
  ASSERT_EQ(trouble.missing, both[32]);
  ASSERT_TRUE(changes.rows.empty());
  ASSERT_EQ(found(table, last), (std::vector<int64_t>{-1, -1}));
  ASSERT_EQ(table.meters[kUsed], 40);
  ASSERT_EQ(memory.keys, before.keys);
  ASSERT_EQ(memory.taken, before.taken);
}

TEST(IdTable, DynamicHandsRowsOutInOrderAndGrows) {
  const IdShape shape = dynamic_shape(10, 5000);
  IdMemory memory(shape, true);
  const IdTable table = memory.table();
  IdPolicy policy;
  policy.evict = false;
  for (int64_t from = 0; from < 5000; from += 250) {
    std::vector<int64_t> rows = give(table, policy, numbers(from, 250));
    std::sort(rows.begin(), rows.end());
    ASSERT_EQ(rows, numbers(from, 250));
    // Nothing behind the part in use was touched.
    const int64_t active = std::max(table.meters[kActive], shape.initial);
    for (int64_t s = active * shape.shards * kBucket; s < shape.slots; ++s)
      ASSERT_EQ(memory.tags[s], 0);
    ASSERT_LE(active * shape.shards * kBucket, 4 * std::max<int64_t>(from + 250, 16));
  }
  const std::vector<int64_t> all = found(table, numbers(0, 5000));
  ASSERT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 5000u);
  EXPECT_EQ(*std::min_element(all.begin(), all.end()), 0);

  // Rows that were given back come again, the lowest first.
  std::vector<int64_t> gone = {4000, 7, 1234}, rows(3);
  erase(table, gone.data(), 3, rows.data());
  EXPECT_EQ(rows, (std::vector<int64_t>{all[4000], all[7], all[1234]}));
  EXPECT_EQ(found(table, gone), (std::vector<int64_t>{-1, -1, -1}));
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(give(table, policy, {-1}), (std::vector<int64_t>{rows[0]}));
  EXPECT_EQ(give(table, policy, {-2}), (std::vector<int64_t>{rows[1]}));
  EXPECT_EQ(table.meters[kHighest], 5000);
}

TEST(IdTable, PinsHoldUntilReleasedOrTooManyAssigns) {
  IdMemory memory(managed_shape(16, 1));
  const IdTable table = memory.table();
  IdPolicy policy;
  policy.open_routes = 3;
  EXPECT_EQ(give(table, policy, numbers(0, 16)).size(), 16u);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(give(table, policy, {100 + step}), (std::vector<int64_t>{-1})) << step;
    EXPECT_EQ(table.meters[kOverflowed], step + 1);
  }
  EXPECT_GE(give(table, policy, {200})[0], 0);  // the fourth newer assign
  release(table);
  EXPECT_GE(give(table, policy, {201})[0], 0);
  EXPECT_EQ(table.meters[kEvicted], 2);
  EXPECT_EQ(found(table, {200})[0] >= 0, true);
}

TEST(IdTable, UpsertRestrictAndPlace) {
  for (bool dynamic : {false, true}) {
    const IdShape shape = dynamic ? dynamic_shape(16, 600) : managed_shape(600, 1);
    IdMemory memory(shape, dynamic);
    const IdTable table = memory.table();
    IdPolicy policy;
    policy.kind = PolicyKind::kLfu;
    const std::vector<int64_t> ids = numbers(1000, 400), scores = numbers(0, 400);
    std::vector<int64_t> rows(400);
    IdChanges changes;
    ASSERT_EQ(upsert(table, policy, ids.data(), scores.data(), 400, rows.data(), &changes).kind,
              IdTrouble::kNone);
    ASSERT_EQ(rows, found(table, ids));
    ASSERT_EQ(changes.rows.size(), 400u);
    ASSERT_EQ(table.meters[kClock], 0);

    // Put where they were, they are the same table.
    IdMemory copy(shape, dynamic);
    copy.meters = memory.meters;
    IdEntries all = entries(table, -1);
    ASSERT_TRUE(place(copy.table(), all));
    ASSERT_TRUE(copy == memory);
    ASSERT_FALSE(place(copy.table(), all));  // taken already
    IdMemory fresh(shape, dynamic);
    fresh.meters = memory.meters;
    const IdMemory empty = fresh;
    ++all.ids[17];
    ASSERT_FALSE(place(fresh.table(), all));
    ASSERT_TRUE(fresh == empty);

    // Seen by the last assign, and so not gone.
    give(table, policy, {1000});
    IdEntries gone = restrict_entries(table, policy, 100, 250);
    std::vector<int64_t> expected = numbers(1001, 150);
    std::sort(gone.ids.begin(), gone.ids.end());
    ASSERT_EQ(gone.ids, expected);
    ASSERT_EQ(table.meters[kUsed], 250);
    for (int64_t i = 0; i < 400; ++i)
      ASSERT_EQ(found(table, {1000 + i})[0] >= 0, i == 0 || i > 150) << i;

    const int64_t beyond = int64_t{1} << 32, one = 1;
    ASSERT_EQ(upsert(table, policy, &one, &beyond, 1, rows.data(), &changes).kind,
              IdTrouble::kScore);
  }
}

TEST(IdTable, RefusesWhatItCantTakeBeforeItWrites) {
  IdMemory memory(managed_shape(64, 1));
  const IdMemory before = memory;
  IdPolicy custom;
  custom.kind = PolicyKind::kCustom;
  const std::vector<int64_t> ids = {1, 2, 3}, counts = {1, 0, 1}, scores = {1, -1, 5};
  std::vector<int64_t> rows(3);
  IdChanges changes;
  const auto trouble = [&](const IdPolicy& policy, const int64_t* c, const int64_t* s) {
    const IdList list = {ids.data(), c, s, 3, false, 0, rows.data()};
    return assign(memory.table(), policy, &list, 1, Serial(), &changes);
  };
  EXPECT_EQ(trouble(IdPolicy(), counts.data(), nullptr).kind, IdTrouble::kCount);
  EXPECT_EQ(trouble(IdPolicy(), counts.data(), nullptr).position, 1);
  EXPECT_EQ(trouble(custom, nullptr, nullptr).kind, IdTrouble::kScore);
  EXPECT_EQ(trouble(custom, nullptr, scores.data()).position, 1);
  EXPECT_TRUE(memory == before);
}

// An id seen c times, then n x half_life assigns later d times more, counts c / 2^n + d; rounding
// is right on average, and in each case by at most one of 4096 parts of a doubling.
TEST(IdPolicies, DecayedCountsAreUnbiased) {
  IdPolicy policy;
  policy.kind = PolicyKind::kDecayedLfu;
  policy.half_life = 50;
  int64_t meters[kFill] = {};
  for (const auto& [count, assigns, more] : std::vector<std::array<int64_t, 3>>{
           {1, 0, 1}, {7, 50, 1}, {100000, 25, 3}, {1000000, 1, 1}, {3, 2000, 2}}) {
    double sum = 0;
    const double exact = count * std::exp2(-assigns / 50.0) + more;
    constexpr int kIds = 20000;
    for (int64_t id = 0; id < kIds; ++id) {
      meters[kClock] = 1000;
      const Step first = Step::of(meters, policy);
      const uint32_t score = first.first(static_cast<uint32_t>(count), 0, hash_of(id));
      meters[kClock] += assigns;
      const Step second = Step::of(meters, policy);
      const uint32_t next = second.next(score, static_cast<uint32_t>(more), 0, hash_of(id));
      const double value = std::exp2((next - meters[kClock] * 4096.0 / 50) / 4096);
      sum += value;
      ASSERT_NEAR(value / exact, 1, 4 * (std::exp2(1 / 4096.) - 1));
    }
    // Two roundings of a step of 2^(1/4096) each, of a standard deviation of at most half a step.
    ASSERT_NEAR(sum / kIds / exact, 1, 5e-6) << count;
  }
}

// Never below what was seen since the counters were last halved, and not often above.
TEST(CountingFilter, ErrorIsAsStated) {
  constexpr int64_t kLines = 1000;
  std::vector<uint8_t> memory(kLines * kFilterLine);
  const CountingFilter filter = {memory.data(), kLines};
  Random random(5);
  std::map<int64_t, int64_t> truth;
  int64_t fill = 0;
  while (fill < filter.window() / 2) {
    const int64_t id = random.below(2) == 0 ? random.below(2000) : random.below(1 << 30);
    ++truth[id];
    ++fill;
    const uint32_t seen = CountingFilter::add(filter.place(hash_of(id), 0), 1);
    ASSERT_GE(seen, std::min<int64_t>(truth[id], 255));
  }
  int64_t once = 0, twice = 0;
  constexpr int kNew = 100000;
  for (int64_t i = 0; i < kNew; ++i) {
    std::vector<uint8_t> line(kFilterLine);
    CountingFilter::Place place = filter.place(hash_of(-1 - i), 0);
    std::copy_n(place.line, kFilterLine, line.data());
    place.line = line.data();
    const uint32_t seen = CountingFilter::add(place, 1);
    once += seen > 1;
    twice += seen > 2;
  }
  EXPECT_LT(once, 0.15 * kNew);
  EXPECT_LT(twice, 0.01 * kNew);
  fill = 3 * filter.window();
  const int64_t highest = *std::max_element(memory.begin(), memory.end());
  filter.age(0, &fill);
  EXPECT_LT(fill, filter.window());
  EXPECT_EQ(*std::max_element(memory.begin(), memory.end()), highest >> 2);
}

}  // namespace
}  // namespace merlin
