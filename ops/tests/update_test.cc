#include <gtest/gtest.h>

#include "tests/backward.h"

namespace merlin {
namespace {

constexpr int64_t kRows = 29;

// A rule as its paper has it: `element` changes a weight and its slots given the row's gradient.
struct Reference {
  const char* name;
  RuleId id;
  std::vector<float> hyper;
  int element_slots, row_slots;
  void (*row)(double mean_square, double* slot);
  void (*element)(const std::vector<float>& h, double lr, double g, double* w, double* slots,
                  const double* row_slot);
};

const std::vector<Reference>& references() {
  static const std::vector<Reference> all = {
      {"sgd",
       RuleId::kSgd,
       {},
       0,
       0,
       nullptr,
       [](const std::vector<float>&, double lr, double g, double* w, double*, const double*) {
         *w -= lr * g;
       }},
      {"momentum",
       RuleId::kMomentum,
       {0.875f, 0},
       1,
       0,
       nullptr,
       [](const std::vector<float>& h, double lr, double g, double* w, double* s, const double*) {
         s[0] = h[0] * s[0] - lr * g;
         *w += s[0];
       }},
      {"nesterov",
       RuleId::kMomentum,
       {0.875f, 1},
       1,
       0,
       nullptr,
       [](const std::vector<float>& h, double lr, double g, double* w, double* s, const double*) {
         s[0] = h[0] * s[0] - lr * g;
         *w += h[0] * s[0] - lr * g;
       }},
      {"adagrad",
       RuleId::kAdagrad,
       {1e-3f},
       1,
       0,
       nullptr,
       [](const std::vector<float>& h, double lr, double g, double* w, double* s, const double*) {
         s[0] += g * g;
         *w -= lr * g / std::sqrt(s[0] + h[0]);
       }},
      {"rowwise adagrad",
       RuleId::kRowwiseAdagrad,
       {1e-3f},
       0,
       1,
       [](double mean_square, double* slot) { *slot += mean_square; },
       [](const std::vector<float>& h, double lr, double g, double* w, double*, const double* r) {
         *w -= lr * g / (std::sqrt(*r) + h[0]);
       }},
      {"adam",
       RuleId::kAdam,
       {0.875f, 0.96875f, 1e-3f, 0.0625f},
       2,
       0,
       nullptr,
       [](const std::vector<float>& h, double, double g, double* w, double* s, const double*) {
         s[0] += (g - s[0]) * (1 - h[0]);
         s[1] += (g * g - s[1]) * (1 - h[1]);
         *w -= h[3] * s[0] / (std::sqrt(s[1]) + h[2]);
       }}};
  return all;
}

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
    return std::string(rule.name) + ", dim " + std::to_string(dim) + ", dtype " +
           std::to_string(static_cast<int>(dtype)) + ", decay " +
           std::to_string(common.weight_decay) + ", " + features[0].name();
  }
};

std::vector<Case> cases(Random& random, int64_t bags, int64_t rows) {
  std::vector<Case> all;
  for (const Reference& rule : references())
    for (int64_t dim : kDims)
      for (DType dtype : kDTypes) {
        const std::vector<Feature> kinds = all_kinds(random, bags, 4, rows);
        const CommonHyper plain = {0.25f, 0, 1}, decayed = {0.25f, 0.125f, 0.5f};
        all.push_back({rule, plain, dim, dtype, {kinds[0]}});
        all.push_back({rule, decayed, dim, dtype, {kinds[1]}});
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
      double mean_square = 0, row_slot = 0;
      if (c.rule.row_slots > 0) row_slot = before.slots[c.rule.element_slots][row];
      for (int64_t d = 0; d < dim; ++d)
        mean_square += std::pow(gradient[row * dim + d] * c.common.gradient_scale, 2) / dim;
      if (seen[row] && c.rule.row != nullptr) c.rule.row(mean_square, &row_slot);
      if (c.rule.row_slots > 0) {
        ASSERT_NEAR(state.slots[c.rule.element_slots][row], row_slot, 1e-4 * (1 + row_slot));
      }
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t i = row * dim + d;
        double weight = before.table.at(i), slots[2] = {};
        for (int s = 0; s < c.rule.element_slots; ++s) slots[s] = before.slots[s][i];
        if (seen[row]) {
          weight -= weight * c.common.learning_rate * c.common.weight_decay;
          c.rule.element(c.rule.hyper, c.common.learning_rate,
                         gradient[i] * c.common.gradient_scale, &weight, slots, &row_slot);
        }
        for (int s = 0; s < c.rule.element_slots; ++s)
          ASSERT_NEAR(state.slots[s][i], slots[s], 1e-4 * (1 + std::fabs(slots[s])));
        // Half of the last place: 8 bits of bfloat16, 11 of float16.
        const double rounding = c.dtype == DType::kBfloat16  ? 0x1p-9
                                : c.dtype == DType::kFloat16 ? 0x1p-12
                                                             : 0;
        ASSERT_NEAR(state.table.at(i), weight, 1e-4 + rounding * 2 * std::fabs(weight))
            << "row " << row << ", column " << d;
      }
    }
  }
}

TEST(Update, ThreadsDoNotChangeABit) {
  Random random(2);
  constexpr int64_t kManyRows = 600;
  for (const Case& c : cases(random, 120, kManyRows)) {
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
           {0.25f, 0, 1},
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
                     {1, 0, 1},
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
