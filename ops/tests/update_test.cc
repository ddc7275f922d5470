#include <gtest/gtest.h>

#include "tests/backward.h"
#include "tests/references.h"

namespace merlin {
namespace {

constexpr int64_t kRows = 29;

// A table with the slots of a rule, all random; squares can't be negative.
struct State {
  State(Random& random, const Reference& rule, int64_t rows, int64_t dim, DType dtype)
      : table(random.numbers(rows * dim), dim, dtype), changed(rows) {
    for (int s = 0; s < rule.element_slots; ++s) slots.push_back(random.numbers(rows * dim));
    for (int s = 0; s < rule.row_slots; ++s) slots.push_back(random.numbers(rows));
    for (auto& slot : slots)
      for (float& x : slot) x = std::fabs(x) + 0.125f;
  }
  UpdateTask task(const Backward& backward, const Reference& rule, const CommonHyper& common) {
    UpdateTask t = {table.table(), backward.gradient(), {}, changed.data(), rule.id,
                    common,        rule.hyper.data()};
    for (size_t s = 0; s < slots.size(); ++s) t.slots[s] = slots[s].data();
    return t;
  }
  bool operator==(const State& other) const {
    return table.bytes() == other.table.bytes() && slots == other.slots && changed == other.changed;
  }

  Storage table;
  std::vector<std::vector<float>> slots;
  std::vector<uint8_t> changed;
};

struct Case {
  Reference rule;
  CommonHyper common;
  int64_t dim;
  DType dtype;
  std::vector<Feature> features;

  std::string name() const {
    return rule.name + ", dim " + std::to_string(dim) + ", dtype " +
           std::to_string(static_cast<int>(dtype)) + ", decay " +
           std::to_string(common.weight_decay) + ", l2 " + std::to_string(common.l2) + ", " +
           features[0].name();
  }
};

std::vector<Case> cases(Random& random, int64_t bags, int64_t rows,
                        const std::vector<int64_t>& dims = kDims) {
  std::vector<Case> all;
  for (const Reference& rule : references())
    for (int64_t dim : dims)
      for (DType dtype : kDTypes) {
        const std::vector<Feature> kinds = all_kinds(random, bags, 4, rows);
        const CommonHyper plain = {0.25f, 0, 1, 0, 0}, decayed = {0.25f, 0.125f, 0.5f, 0, 0},
                          limited = {0.25f, 0, 1, 0.25f, 1.5f};
        all.push_back({rule, plain, dim, dtype, {kinds[0]}});
        all.push_back({rule, decayed, dim, dtype, {kinds[1]}});
        all.push_back({rule, limited, dim, dtype, {kinds[2]}});
        all.push_back({rule, plain, dim, dtype, kinds});
      }
  return all;
}

TEST(Update, IsTheRuleOnTheSummedGradient) {
  Random random(1);
  for (const Case& c : cases(random, 20, kRows)) {
    SCOPED_TRACE(c.name());
    const int64_t dim = c.dim;
    State state(random, c.rule, kRows, dim, c.dtype);
    const State before = state;
    const auto gradients = random_gradients(random, c.features, dim);
    const Backward backward(c.features, state.table, gradients, Serial());
    std::vector<double> gradient(kRows * dim);
    for (size_t f = 0; f < c.features.size(); ++f)
      naive_gradient(c.features[f], before.table, dim, gradients[f], &gradient);
    update({state.task(backward, c.rule, c.common)}, Serial());

    std::vector<bool> seen(kRows);
    for (int64_t row : backward.rows()) seen[row] = true;
    for (int64_t row = 0; row < kRows; ++row) {
      ASSERT_EQ(state.changed[row], seen[row] ? 1 : 0);
      const auto part = [&](int slot) { return slot < c.rule.element_slots ? dim : 1; };
      Step step{c.rule.hyper, c.common, {}, {}, {}};
      for (int64_t i = row * dim; i < (row + 1) * dim; ++i) {
        step.g.push_back(gradient[i]);
        step.w.push_back(before.table.at(i));
      }
      for (int s = 0; s < c.rule.element_slots + c.rule.row_slots; ++s)
        step.slots.emplace_back(before.slots[s].begin() + row * part(s),
                                before.slots[s].begin() + (row + 1) * part(s));
      if (seen[row]) reference_step(c.rule, step);
      for (int s = 0; s < c.rule.element_slots + c.rule.row_slots; ++s)
        for (int64_t d = 0; d < part(s); ++d)
          ASSERT_NEAR(state.slots[s][row * part(s) + d], step.slots[s][d],
                      1e-4 * (1 + std::fabs(step.slots[s][d])))
              << "slot " << s << " of row " << row << ", column " << d;
      // Half of the last place: 8 bits of bfloat16, 11 of float16.
      const double rounding = c.dtype == DType::kBfloat16  ? 0x1p-9
                              : c.dtype == DType::kFloat16 ? 0x1p-12
                                                           : 0;
      for (int64_t d = 0; d < dim; ++d)
        ASSERT_NEAR(state.table.at(row * dim + d), step.w[d],
                    1e-4 + rounding * 2 * std::fabs(step.w[d]))
            << "row " << row << ", column " << d;
    }
  }
}

// What lengths of zero, gradients of zero and numbers that are none do: the first two must not make
// a NaN, which the last must not hide.
TEST(Update, ZerosAndNans) {
  for (const Reference& rule : references()) {
    SCOPED_TRACE(rule.name);
    const std::vector<Feature> features = {{{0, 1, 2}, {}, {}, 1, Combiner::kSum}};
    const std::vector<std::vector<float>> gradients = {{0, 0, 1, 2, NAN, 1}};
    Storage table({0, 0, 0, 0, 1, 1}, 2, DType::kFloat32);
    const Backward backward(features, table, gradients, Serial());
    std::vector<std::vector<float>> slots(kMaxSlots, std::vector<float>(6));
    std::vector<uint8_t> changed(3);
    UpdateTask task = {table.table(),          backward.gradient(), {}, changed.data(), rule.id,
                       {0.25f, 0.5f, 1, 0, 4}, rule.hyper.data()};
    for (int s = 0; s < kMaxSlots; ++s) task.slots[s] = slots[s].data();
    update({task}, Serial());
    for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(table.at(i), 0);
    for (int64_t i = 2; i < 4; ++i) EXPECT_LE(table.at(i), 0);
    EXPECT_TRUE(std::isnan(table.at(4)));
    EXPECT_LT(table.at(3), 0);
  }
}

TEST(Update, ThreadsDoNotChangeABit) {
  Random random(2);
  constexpr int64_t kManyRows = 600;
  for (const Case& c : cases(random, 120, kManyRows, {7, 64})) {
    SCOPED_TRACE(c.name());
    State start(random, c.rule, kManyRows, c.dim, c.dtype);
    const auto gradients = random_gradients(random, c.features, c.dim);
    State one = start;
    const Backward backward(c.features, start.table, gradients, Serial());
    update({one.task(backward, c.rule, c.common)}, Serial());
    ASSERT_FALSE(one == start);
    for (int threads : kThreadCounts) {
      State many = start;
      update({many.task(backward, c.rule, c.common)}, Threads(threads));
      ASSERT_TRUE(many == one) << threads << " threads";
    }
  }
}

TEST(Update, InstructionSetsDoNotChangeABit) {
  Random random(3);
  for (const Case& c : cases(random, 20, kRows)) {
    SCOPED_TRACE(c.name());
    State start(random, c.rule, kRows, c.dim, c.dtype);
    const auto gradients = random_gradients(random, c.features, c.dim);
    const Backward backward(c.features, start.table, gradients, Serial());
    std::vector<State> results;
    for (Isa isa : instruction_sets()) {
      results.push_back(start);
      kernels(isa)->update(results.back().task(backward, c.rule, c.common), 0,
                           backward.gradient().groups.size);
    }
    for (const State& result : results) ASSERT_TRUE(result == results[0]);
  }
}

// Wider than the scratch that fits the stack.
TEST(Update, WideRows) {
  Random random(4);
  const int64_t dim = 1030;
  Storage table(std::vector<float>(2 * dim, 1), dim, DType::kBfloat16);
  const std::vector<Feature> features = {{{1, 1}, {}, {}, 1, Combiner::kSum}};
  const std::vector<std::vector<float>> gradients = {std::vector<float>(2 * dim, 0.5f)};
  const Backward backward(features, table, gradients, Serial());
  std::vector<uint8_t> changed(2);
  update({{table.table(),
           backward.gradient(),
           {},
           changed.data(),
           RuleId::kSgd,
           {0.25f, 0, 1, 0, 0},
           nullptr}},
         Serial());
  for (int64_t i = 0; i < 2 * dim; ++i) ASSERT_EQ(table.at(i), i < dim ? 1 : 0.75);
}

TEST(Update, TablesOfOneStepDoNotMix) {
  const std::vector<Feature> features = {{{0, 2}, {}, {}, 1, Combiner::kSum}};
  std::vector<Storage> tables;
  std::vector<std::vector<std::vector<float>>> gradients;
  std::vector<std::unique_ptr<Backward>> backwards;
  std::vector<std::vector<uint8_t>> changed(5, std::vector<uint8_t>(3));
  for (int t = 0; t < 5; ++t) {
    tables.emplace_back(std::vector<float>(3, 0), 1, DType::kFloat32);
    gradients.push_back({{static_cast<float>(t), static_cast<float>(10 * t)}});
  }
  std::vector<UpdateTask> tasks;
  for (int t = 0; t < 5; ++t) {
    backwards.push_back(std::make_unique<Backward>(features, tables[t], gradients[t], Serial()));
    tasks.push_back({tables[t].table(),
                     backwards[t]->gradient(),
                     {},
                     changed[t].data(),
                     RuleId::kSgd,
                     {1, 0, 1, 0, 0},
                     nullptr});
  }
  update(tasks, Threads(3));
  for (int t = 0; t < 5; ++t) {
    EXPECT_EQ(tables[t].at(0), -t);
    EXPECT_EQ(tables[t].at(1), 0);
    EXPECT_EQ(tables[t].at(2), -10 * t);
  }
}

}  // namespace
}  // namespace merlin
