// The optimizers' rules: what happens to one row when its summed gradient has come. A rule is a
// small struct made from the hyper-parameters; the driver in kernels_update.cc (and its CUDA twin)
// walks the rows, and does what all rules share: coupled and decoupled decay, and the largest norm.
// A rule has
//   kElementSlots  slots of shape [R, D], handed to element() (and direction()) in order
//   kRowSlots      slots of shape [R], handed to row() before the elements, with mean(gradient^2)
//   kHyper         hyper-parameters of its own
//   element(gradient, step, weight, slots): one weight and its slots; `step` is what row() returned
// A rule with a trust ratio also has kTrustRatio = true: its row is passed over twice, and it does
// its own weight decay, inside the ratio.
//   direction(gradient, step, weight, slots): first pass; what element() gets in place of gradient
//   trust(step, weight_norm, direction_norm): between them; what element() gets for `step`
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define MERLIN_RULE __host__ __device__ inline
#else
#define MERLIN_RULE inline __attribute__((always_inline))
#endif

// All rules: id, struct, name.
#define MERLIN_RULES(RULE)                                                             \
  RULE(kSgd, Sgd, "sgd")                                                               \
  RULE(kMomentum, Momentum, "momentum")                                                \
  RULE(kAdagrad, Adagrad, "adagrad")                                                   \
  RULE(kRowwiseAdagrad, RowwiseAdagrad, "rowwise_adagrad")                             \
  RULE(kAdam, Adam, "adam")                                                            \
  RULE(kAmsgrad, Amsgrad, "amsgrad")                                                   \
  RULE(kRowwiseAdam, RowwiseAdam, "rowwise_adam")                                      \
  RULE(kLamb, Lamb, "lamb")                                                            \
  RULE(kRowwiseLamb, RowwiseLamb, "rowwise_lamb")                                      \
  RULE(kLars, Lars, "lars")                                                            \
  RULE(kLion, Lion, "lion")                                                            \
  RULE(kRmsprop, Rmsprop, "rmsprop")                                                   \
  RULE(kRmspropMomentum, RmspropMomentum, "rmsprop_momentum")                          \
  RULE(kRmspropCentered, RmspropCentered, "rmsprop_centered")                          \
  RULE(kRmspropCenteredMomentum, RmspropCenteredMomentum, "rmsprop_centered_momentum") \
  RULE(kRowwiseRmsprop, RowwiseRmsprop, "rowwise_rmsprop")                             \
  RULE(kFtrl, Ftrl, "ftrl")                                                            \
  RULE(kFtrlPower, FtrlPower, "ftrl_power")

namespace merlin {

constexpr int kMaxSlots = 3;

#define MERLIN_RULE_ID(id, rule, name) id,
enum class RuleId : int32_t { MERLIN_RULES(MERLIN_RULE_ID) };
#undef MERLIN_RULE_ID

// What every rule takes first, and the driver does for them, in this order:
//   gradient *= gradient_scale
//   gradient += l2 * weight                                  coupled decay: the gradient of L2
//   weight -= weight * learning_rate * weight_decay          decoupled (Loshchilov and Hutter,
//   2019) the rule weight *= max_norm / norm(row)                           if the norm is larger;
//   0: no limit
struct CommonHyper {
  float learning_rate, weight_decay, gradient_scale, l2, max_norm;
  static constexpr int kSize = 5;
};

// The namespace keeps the copies that are compiled for different instruction sets apart.
#if defined(MERLIN_ISA)
namespace MERLIN_ISA {
#endif

// What most rules are: no slot of a row, no trust ratio.
struct ElementRule {
  static constexpr int kRowSlots = 0;
  static constexpr bool kTrustRatio = false;
  MERLIN_RULE float row(float, float*) const { return 0; }
};

struct Sgd : ElementRule {
  static constexpr int kElementSlots = 0, kHyper = 0;
  float learning_rate;

  MERLIN_RULE Sgd(const CommonHyper& common, const float*) : learning_rate(common.learning_rate) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float*) const {
    weight -= learning_rate * gradient;
  }
};

// Polyak momentum, or Nesterov's, as Keras writes them.
struct Momentum : ElementRule {
  static constexpr int kElementSlots = 1, kHyper = 2;
  float learning_rate, momentum, ahead, now;

  MERLIN_RULE Momentum(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate),
        momentum(hyper[0]),
        ahead(hyper[1] != 0 ? hyper[0] : 1),
        now(hyper[1] != 0 ? common.learning_rate : 0) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] = momentum * slots[0] - learning_rate * gradient;
    weight += ahead * slots[0] - now * gradient;
  }
};

// Duchi, Hazan and Singer, 2011; epsilon under the root, as Keras has it.
struct Adagrad : ElementRule {
  static constexpr int kElementSlots = 1, kHyper = 1;
  float learning_rate, epsilon;

  MERLIN_RULE Adagrad(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate), epsilon(hyper[0]) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] += gradient * gradient;
    weight -= learning_rate * gradient / std::sqrt(slots[0] + epsilon);
  }
};

// One accumulator a row (Naumov et al., DLRM, 2019).
struct RowwiseAdagrad {
  static constexpr int kElementSlots = 0, kRowSlots = 1, kHyper = 1;
  static constexpr bool kTrustRatio = false;
  float learning_rate, epsilon;

  MERLIN_RULE RowwiseAdagrad(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate), epsilon(hyper[0]) {}
  MERLIN_RULE float row(float mean_square, float* slots) const {
    slots[0] += mean_square;
    return learning_rate / (std::sqrt(slots[0]) + epsilon);
  }
  MERLIN_RULE void element(float gradient, float step, float& weight, float*) const {
    weight -= step * gradient;
  }
};

// Kingma and Ba, 2015; lazy: the moments of rows not seen stand still. `alpha` is the learning rate
// with both bias corrections in it.
struct Adam : ElementRule {
  static constexpr int kElementSlots = 2, kHyper = 4;
  float gain_1, gain_2, epsilon, alpha;

  MERLIN_RULE Adam(const CommonHyper&, const float* hyper)
      : gain_1(1 - hyper[0]), gain_2(1 - hyper[1]), epsilon(hyper[2]), alpha(hyper[3]) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] += (gradient - slots[0]) * gain_1;
    slots[1] += (gradient * gradient - slots[1]) * gain_2;
    weight -= alpha * slots[0] / (std::sqrt(slots[1]) + epsilon);
  }
};

// Reddi, Kale and Kumar, 2018: divides by the largest second moment so far, slot 2.
struct Amsgrad : ElementRule {
  static constexpr int kElementSlots = 3, kHyper = 4;
  float gain_1, gain_2, epsilon, alpha;

  MERLIN_RULE Amsgrad(const CommonHyper&, const float* hyper)
      : gain_1(1 - hyper[0]), gain_2(1 - hyper[1]), epsilon(hyper[2]), alpha(hyper[3]) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] += (gradient - slots[0]) * gain_1;
    slots[1] += (gradient * gradient - slots[1]) * gain_2;
    slots[2] = slots[1] > slots[2] ? slots[1] : slots[2];
    weight -= alpha * slots[0] / (std::sqrt(slots[2]) + epsilon);
  }
};

// The two moments' hyper-parameters: beta_1, beta_2, epsilon and, of this step, 1 / (1 - beta_1^t)
// and 1 / (1 - beta_2^t).
struct Moments {
  static constexpr int kHyper = 5;
  float gain_1, gain_2, epsilon, correction_1, correction_2;

  MERLIN_RULE explicit Moments(const float* hyper)
      : gain_1(1 - hyper[0]),
        gain_2(1 - hyper[1]),
        epsilon(hyper[2]),
        correction_1(hyper[3]),
        correction_2(hyper[4]) {}
  // 1 / (the root of the corrected second moment + epsilon), which a row shares.
  MERLIN_RULE float row(float mean_square, float* slots) const {
    slots[0] += (mean_square - slots[0]) * gain_2;
    return 1 / (std::sqrt(slots[0] * correction_2) + epsilon);
  }
};

// Adam whose second moment is one number a row, of the mean of the gradient's squares: FBGEMM's
// partial row-wise Adam.
struct RowwiseAdam : Moments {
  static constexpr int kElementSlots = 1, kRowSlots = 1;
  static constexpr bool kTrustRatio = false;
  float alpha;

  MERLIN_RULE RowwiseAdam(const CommonHyper& common, const float* hyper)
      : Moments(hyper), alpha(common.learning_rate * correction_1) {}
  MERLIN_RULE void element(float gradient, float step, float& weight, float* slots) const {
    slots[0] += (gradient - slots[0]) * gain_1;
    weight -= alpha * step * slots[0];
  }
};

// You et al., 2020: Adam's step and the decay together, as long as the weights. Rows of zeros,
// which have no length, take the step as it is.
struct TrustRatio {
  static constexpr bool kTrustRatio = true;
  float learning_rate, weight_decay;

  MERLIN_RULE explicit TrustRatio(const CommonHyper& common)
      : learning_rate(common.learning_rate), weight_decay(common.weight_decay) {}
  MERLIN_RULE float trust(float, float weight_norm, float direction_norm) const {
    return weight_norm > 0 && direction_norm > 0 ? learning_rate * weight_norm / direction_norm
                                                 : learning_rate;
  }
  MERLIN_RULE void element(float direction, float step, float& weight, float*) const {
    weight -= step * direction;
  }
};

struct Lamb : TrustRatio {
  static constexpr int kElementSlots = 2, kRowSlots = 0, kHyper = Moments::kHyper;
  Moments moments;

  MERLIN_RULE Lamb(const CommonHyper& common, const float* hyper)
      : TrustRatio(common), moments(hyper) {}
  MERLIN_RULE float row(float, float*) const { return 0; }
  MERLIN_RULE float direction(float gradient, float, float weight, float* slots) const {
    slots[0] += (gradient - slots[0]) * moments.gain_1;
    slots[1] += (gradient * gradient - slots[1]) * moments.gain_2;
    const float root = std::sqrt(slots[1] * moments.correction_2) + moments.epsilon;
    return slots[0] * moments.correction_1 / root + weight_decay * weight;
  }
};

// With the second moment of RowwiseAdam: FBGEMM's partial row-wise LAMB.
struct RowwiseLamb : TrustRatio {
  static constexpr int kElementSlots = 1, kRowSlots = 1, kHyper = Moments::kHyper;
  Moments moments;

  MERLIN_RULE RowwiseLamb(const CommonHyper& common, const float* hyper)
      : TrustRatio(common), moments(hyper) {}
  MERLIN_RULE float row(float mean_square, float* slots) const {
    return moments.row(mean_square, slots);
  }
  MERLIN_RULE float direction(float gradient, float step, float weight, float* slots) const {
    slots[0] += (gradient - slots[0]) * moments.gain_1;
    return slots[0] * moments.correction_1 * step + weight_decay * weight;
  }
};

// You, Gitman and Ginsburg, 2017: momentum, each row's learning rate being `coefficient` times the
// length of its weights over that of its gradient and decay.
struct Lars : TrustRatio {
  static constexpr int kElementSlots = 1, kRowSlots = 0, kHyper = 2;
  float momentum, coefficient;

  MERLIN_RULE Lars(const CommonHyper& common, const float* hyper)
      : TrustRatio(common), momentum(hyper[0]), coefficient(hyper[1]) {}
  MERLIN_RULE float row(float, float*) const { return 0; }
  MERLIN_RULE float direction(float gradient, float, float, float*) const { return gradient; }
  MERLIN_RULE float trust(float, float weight_norm, float gradient_norm) const {
    if (!(weight_norm > 0 && gradient_norm > 0)) return learning_rate;
    return learning_rate * coefficient * weight_norm / (gradient_norm + weight_decay * weight_norm);
  }
  MERLIN_RULE void element(float gradient, float step, float& weight, float* slots) const {
    slots[0] = momentum * slots[0] + step * (gradient + weight_decay * weight);
    weight -= slots[0];
  }
};

// Chen et al., 2023: the sign of a momentum that looks ahead.
struct Lion : ElementRule {
  static constexpr int kElementSlots = 1, kHyper = 2;
  float learning_rate, beta_1, beta_2;

  MERLIN_RULE Lion(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate), beta_1(hyper[0]), beta_2(hyper[1]) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    const float ahead = beta_1 * slots[0] + (1 - beta_1) * gradient;
    weight -= ahead > 0 ? learning_rate : ahead < 0 ? -learning_rate : ahead;  // 0, or a NaN
    slots[0] = beta_2 * slots[0] + (1 - beta_2) * gradient;
  }
};

// Tieleman and Hinton, 2012, as Keras writes it: epsilon under the root, momentum of the steps,
// centered by the mean gradient (Graves, 2013). Slots: velocity, momentum, mean gradient.
template <bool kMomentum, bool kCentered>
struct RmspropOf : ElementRule {
  static constexpr int kElementSlots = 1 + kMomentum + kCentered, kHyper = 3;
  float learning_rate, rho, momentum, epsilon;

  MERLIN_RULE RmspropOf(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate), rho(hyper[0]), momentum(hyper[1]), epsilon(hyper[2]) {}
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] = rho * slots[0] + (1 - rho) * (gradient * gradient);
    float square = slots[0];
    if constexpr (kCentered) {
      float& mean = slots[1 + kMomentum];
      mean = rho * mean + (1 - rho) * gradient;
      square -= mean * mean;
      if (square < 0) square = 0;  // by rounding: a root of it would be NaN
    }
    float change = learning_rate * gradient / std::sqrt(square + epsilon);
    if constexpr (kMomentum) change = slots[1] = momentum * slots[1] + change;
    weight -= change;
  }
};
using Rmsprop = RmspropOf<false, false>;
using RmspropMomentum = RmspropOf<true, false>;
using RmspropCentered = RmspropOf<false, true>;
using RmspropCenteredMomentum = RmspropOf<true, true>;

struct RowwiseRmsprop {
  static constexpr int kElementSlots = 0, kRowSlots = 1, kHyper = 2;
  static constexpr bool kTrustRatio = false;
  float learning_rate, rho, epsilon;

  MERLIN_RULE RowwiseRmsprop(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate), rho(hyper[0]), epsilon(hyper[1]) {}
  MERLIN_RULE float row(float mean_square, float* slots) const {
    slots[0] = rho * slots[0] + (1 - rho) * mean_square;
    return learning_rate / std::sqrt(slots[0] + epsilon);
  }
  MERLIN_RULE void element(float gradient, float step, float& weight, float*) const {
    weight -= step * gradient;
  }
};

// McMahan et al., 2013, as Keras writes it. Slots: accumulator, linear. kRoot: the learning rate
// falls with the root of the accumulator, its usual power. The l2 in `hyper` has beta in it.
template <bool kRoot>
struct FtrlOf : ElementRule {
  static constexpr int kElementSlots = 2, kHyper = 4;
  float learning_rate, power, l1, two_l2, two_shrinkage;

  MERLIN_RULE FtrlOf(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate),
        power(-hyper[0]),
        l1(hyper[1]),
        two_l2(2 * hyper[2]),
        two_shrinkage(2 * hyper[3]) {}
  MERLIN_RULE float raised(float x) const { return kRoot ? std::sqrt(x) : std::pow(x, power); }
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    const float before = raised(slots[0]);
    slots[0] += gradient * gradient;
    const float after = raised(slots[0]);
    slots[1] += gradient + two_shrinkage * weight - (after - before) / learning_rate * weight;
    const float linear = slots[1], quadratic = after / learning_rate + two_l2;
    const float kept = linear > l1 ? l1 : linear < -l1 ? -l1 : linear;
    // Where no gradient has come so far, both may be 0.
    weight = kept == linear ? 0.0f : (kept - linear) / quadratic;
  }
};
using Ftrl = FtrlOf<true>;
using FtrlPower = FtrlOf<false>;

#if defined(MERLIN_ISA)
}  // namespace MERLIN_ISA
#endif
}  // namespace merlin
