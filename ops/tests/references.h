// Each rule as its paper has it, on one row in double precision: what the kernels are compared
// with.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/kernels.h"

namespace merlin {

using Numbers = std::vector<double>;

inline double square_sum(const Numbers& row) {
  double sum = 0;
  for (double x : row) sum += x * x;
  return sum;
}

// What a step has: a row's gradient [D] (scaled, and with l2 * weight), weights [D] and slots, in
// the kernels' order: [D] each, then [1] each.
struct Step {
  const std::vector<float>& h;
  CommonHyper common;
  Numbers g, w;
  std::vector<Numbers> slots;

  int64_t dim() const { return static_cast<int64_t>(g.size()); }
  double mean_square() const { return square_sum(g) / static_cast<double>(dim()); }
  // A step along `direction`, as long as the weights times the learning rate.
  void trust(const Numbers& direction) {
    const double own = std::sqrt(square_sum(w)), other = std::sqrt(square_sum(direction));
    const double ratio = own > 0 && other > 0 ? own / other : 1;
    for (int64_t d = 0; d < dim(); ++d) w[d] -= common.learning_rate * ratio * direction[d];
  }
};

struct Reference {
  std::string name;
  RuleId id;
  std::vector<float> hyper;
  int element_slots, row_slots;
  bool own_decay;
  std::function<void(Step&)> rule;
};

// A reference from what happens to one number: f(h, learning rate, g, w, slots).
template <class F>
Reference by_element(const char* name, RuleId id, std::vector<float> hyper, int slots, F f) {
  return {name, id, hyper, slots, 0, false, [=](Step& step) {
            for (int64_t d = 0; d < step.dim(); ++d) {
              double s[kMaxSlots] = {};
              for (int k = 0; k < slots; ++k) s[k] = step.slots[k][d];
              f(step.h, step.common.learning_rate, step.g[d], step.w[d], s);
              for (int k = 0; k < slots; ++k) step.slots[k][d] = s[k];
            }
          }};
}

// Moments of Adam's kind into the slots; the direction that they give, with its decay.
inline Numbers adam_direction(Step& step, bool row_wise, double decay) {
  const auto& h = step.h;
  if (row_wise) step.slots[1][0] = h[1] * step.slots[1][0] + (1 - h[1]) * step.mean_square();
  Numbers direction(step.dim());
  for (int64_t d = 0; d < step.dim(); ++d) {
    double &m = step.slots[0][d], &v = step.slots[1][row_wise ? 0 : d];
    m = h[0] * m + (1 - h[0]) * step.g[d];
    if (!row_wise) v = h[1] * v + (1 - h[1]) * step.g[d] * step.g[d];
    direction[d] = m * h[3] / (std::sqrt(v * h[4]) + h[2]) + decay * step.w[d];
  }
  return direction;
}

inline std::vector<Reference> references() {
  using H = const std::vector<float>&;
  std::vector<Reference> all;
  all.push_back(by_element("sgd", RuleId::kSgd, {}, 0,
                           [](H, double lr, double g, double& w, double*) { w -= lr * g; }));
  for (float nesterov : {0.0f, 1.0f})
    all.push_back(by_element(nesterov != 0 ? "nesterov" : "momentum", RuleId::kMomentum,
                             {0.875f, nesterov}, 1,
                             [](H h, double lr, double g, double& w, double* s) {
                               s[0] = h[0] * s[0] - lr * g;
                               w += h[1] != 0 ? h[0] * s[0] - lr * g : s[0];
                             }));
  all.push_back(by_element("adagrad", RuleId::kAdagrad, {1e-3f}, 1,
                           [](H h, double lr, double g, double& w, double* s) {
                             s[0] += g * g;
                             w -= lr * g / std::sqrt(s[0] + h[0]);
                           }));
  for (RuleId id : {RuleId::kAdam, RuleId::kAmsgrad})
    all.push_back(by_element(id == RuleId::kAdam ? "adam" : "amsgrad", id,
                             {0.875f, 0.96875f, 1e-3f, 0.0625f}, id == RuleId::kAdam ? 2 : 3,
                             [](H h, double, double g, double& w, double* s) {
                               s[0] = h[0] * s[0] + (1 - h[0]) * g;
                               s[1] = h[1] * s[1] + (1 - h[1]) * g * g;
                               s[2] = std::fmax(s[2], s[1]);  // 0 without the slot
                               w -= h[3] * s[0] / (std::sqrt(s[2]) + h[2]);
                             }));
  all.push_back(by_element("lion", RuleId::kLion, {0.875f, 0.96875f}, 1,
                           [](H h, double lr, double g, double& w, double* s) {
                             const double ahead = h[0] * s[0] + (1 - h[0]) * g;
                             w -= lr * ((ahead > 0) - (ahead < 0));
                             s[0] = h[1] * s[0] + (1 - h[1]) * g;
                           }));
  for (bool momentum : {false, true})
    for (bool centered : {false, true}) {
      const RuleId id = momentum
                            ? centered ? RuleId::kRmspropCenteredMomentum : RuleId::kRmspropMomentum
                            : (centered ? RuleId::kRmspropCentered : RuleId::kRmsprop);
      all.push_back(by_element(
          momentum ? centered ? "centered rmsprop with momentum" : "rmsprop with momentum"
                   : (centered ? "centered rmsprop" : "rmsprop"),
          id, {0.875f, 0.75f, 0.125f}, 1 + momentum + centered,
          [=](H h, double lr, double g, double& w, double* s) {
            double& mean = s[1 + momentum];
            s[0] = h[0] * s[0] + (1 - h[0]) * g * g;
            if (centered) mean = h[0] * mean + (1 - h[0]) * g;
            const double square = s[0] - (centered ? mean * mean : 0);
            double change = lr * g / std::sqrt(std::fmax(square, 0) + h[2]);
            if (momentum) change = s[1] = h[1] * s[1] + change;
            w -= change;
          }));
    }
  for (float power : {-0.5f, -0.75f})
    all.push_back(by_element(power == -0.5f ? "ftrl" : "ftrl of another power",
                             power == -0.5f ? RuleId::kFtrl : RuleId::kFtrlPower,
                             {power, 0.25f, 0.125f, 0.0625f}, 2,
                             [](H h, double lr, double g, double& w, double* s) {
                               const double before = std::pow(s[0], -h[0]);
                               s[0] += g * g;
                               const double after = std::pow(s[0], -h[0]);
                               s[1] += g + 2 * h[3] * w - (after - before) / lr * w;
                               const double kept = std::fmin(std::fmax(s[1], -h[1]), h[1]);
                               w = (kept - s[1]) / (after / lr + 2 * h[2]);
                             }));
  all.push_back({"row-wise adagrad", RuleId::kRowwiseAdagrad, {1e-3f}, 0, 1, false, [](Step& step) {
                   step.slots[0][0] += step.mean_square();
                   for (int64_t d = 0; d < step.dim(); ++d)
                     step.w[d] -= step.common.learning_rate * step.g[d] /
                                  (std::sqrt(step.slots[0][0]) + step.h[0]);
                 }});
  all.push_back(
      {"row-wise rmsprop", RuleId::kRowwiseRmsprop, {0.875f, 1e-3f}, 0, 1, false, [](Step& step) {
         double& v = step.slots[0][0];
         v = step.h[0] * v + (1 - step.h[0]) * step.mean_square();
         for (int64_t d = 0; d < step.dim(); ++d)
           step.w[d] -= step.common.learning_rate * step.g[d] / std::sqrt(v + step.h[1]);
       }});
  const std::vector<float> moments = {0.875f, 0.96875f, 1e-3f, 2, 4};
  all.push_back({"row-wise adam", RuleId::kRowwiseAdam, moments, 1, 1, false, [](Step& step) {
                   const Numbers direction = adam_direction(step, true, 0);
                   for (int64_t d = 0; d < step.dim(); ++d)
                     step.w[d] -= step.common.learning_rate * direction[d];
                 }});
  for (bool row_wise : {false, true})
    all.push_back({row_wise ? "row-wise lamb" : "lamb",
                   row_wise ? RuleId::kRowwiseLamb : RuleId::kLamb, moments, row_wise ? 1 : 2,
                   row_wise ? 1 : 0, true, [=](Step& step) {
                     step.trust(adam_direction(step, row_wise, step.common.weight_decay));
                   }});
  all.push_back({"lars", RuleId::kLars, {0.875f, 0.125f}, 1, 0, true, [](Step& step) {
                   const double lr = step.common.learning_rate, decay = step.common.weight_decay;
                   const double own = std::sqrt(square_sum(step.w));
                   const double slope = std::sqrt(square_sum(step.g));
                   const double ratio =
                       own > 0 && slope > 0 ? step.h[1] * own / (slope + decay * own) : 1;
                   for (int64_t d = 0; d < step.dim(); ++d) {
                     double& v = step.slots[0][d];
                     v = step.h[0] * v + lr * ratio * (step.g[d] + decay * step.w[d]);
                     step.w[d] -= v;
                   }
                 }});
  return all;
}

// One step with all that goes around a rule.
inline void reference_step(const Reference& reference, Step& step) {
  const CommonHyper& common = step.common;
  for (int64_t d = 0; d < step.dim(); ++d)
    step.g[d] = step.g[d] * common.gradient_scale + common.l2 * step.w[d];
  if (!reference.own_decay)
    for (double& w : step.w) w *= 1 - double{common.learning_rate} * common.weight_decay;
  reference.rule(step);
  const double length = std::sqrt(square_sum(step.w));
  if (common.max_norm > 0 && length > common.max_norm)
    for (double& w : step.w) w *= common.max_norm / length;
}

}  // namespace merlin
