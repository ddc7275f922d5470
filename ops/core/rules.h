// The optimizers' rules: what happens to one row, element by element, when its summed gradient has
// come. A rule is a small struct made from the hyper-parameters; the driver in kernels_update.cc
// (and its CUDA twin) walks the rows. A rule has
//   kElementSlots  slots of shape [R, D], handed to element() in order
//   kRowSlots      slots of shape [R], handed to row() before the elements, with mean(gradient^2)
//   element(gradient, step, weight, slots): one weight and its slots; `step` is what row() returned
#pragma once

#include <cmath>

#if defined(__CUDACC__)
#define MERLIN_RULE __host__ __device__ inline
#else
#define MERLIN_RULE inline __attribute__((always_inline))
#endif

namespace merlin {

constexpr int kMaxSlots = 2;

// What every rule takes first. Decay is decoupled (Loshchilov and Hutter, 2019) and acts on the
// rows seen: weight -= weight * learning_rate * weight_decay.
struct CommonHyper {
  float learning_rate, weight_decay, gradient_scale;
  static constexpr int kSize = 3;
};

// The namespace keeps the copies that are compiled for different instruction sets apart.
#if defined(MERLIN_ISA)
namespace MERLIN_ISA {
#endif

struct Sgd {
  static constexpr int kElementSlots = 0, kRowSlots = 0, kHyper = 0;
  float learning_rate;

  MERLIN_RULE Sgd(const CommonHyper& common, const float*) : learning_rate(common.learning_rate) {}
  MERLIN_RULE float row(float, float*) const { return 0; }
  MERLIN_RULE void element(float gradient, float, float& weight, float*) const {
    weight -= learning_rate * gradient;
  }
};

// Polyak momentum, or Nesterov's, as Keras writes them.
struct Momentum {
  static constexpr int kElementSlots = 1, kRowSlots = 0, kHyper = 2;
  float learning_rate, momentum, ahead, now;

  MERLIN_RULE Momentum(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate),
        momentum(hyper[0]),
        ahead(hyper[1] != 0 ? hyper[0] : 1),
        now(hyper[1] != 0 ? common.learning_rate : 0) {}
  MERLIN_RULE float row(float, float*) const { return 0; }
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] = momentum * slots[0] - learning_rate * gradient;
    weight += ahead * slots[0] - now * gradient;
  }
};

// Duchi, Hazan and Singer, 2011; epsilon under the root, as Keras has it.
struct Adagrad {
  static constexpr int kElementSlots = 1, kRowSlots = 0, kHyper = 1;
  float learning_rate, epsilon;

  MERLIN_RULE Adagrad(const CommonHyper& common, const float* hyper)
      : learning_rate(common.learning_rate), epsilon(hyper[0]) {}
  MERLIN_RULE float row(float, float*) const { return 0; }
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] += gradient * gradient;
    weight -= learning_rate * gradient / std::sqrt(slots[0] + epsilon);
  }
};

// One accumulator a row (Naumov et al., DLRM, 2019).
struct RowwiseAdagrad {
  static constexpr int kElementSlots = 0, kRowSlots = 1, kHyper = 1;
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
struct Adam {
  static constexpr int kElementSlots = 2, kRowSlots = 0, kHyper = 4;
  float gain_1, gain_2, epsilon, alpha;

  MERLIN_RULE Adam(const CommonHyper&, const float* hyper)
      : gain_1(1 - hyper[0]), gain_2(1 - hyper[1]), epsilon(hyper[2]), alpha(hyper[3]) {}
  MERLIN_RULE float row(float, float*) const { return 0; }
  MERLIN_RULE void element(float gradient, float, float& weight, float* slots) const {
    slots[0] += (gradient - slots[0]) * gain_1;
    slots[1] += (gradient * gradient - slots[1]) * gain_2;
    weight -= alpha * slots[0] / (std::sqrt(slots[1]) + epsilon);
  }
};

#if defined(MERLIN_ISA)
}  // namespace MERLIN_ISA
#endif
}  // namespace merlin
