// What a slot's score is and when a slot may go: the arithmetic of IdPolicy, in integers, so that
// every machine, and the CUDA twin, has the same bits.
#pragma once

#include "id_table.h"

namespace merlin {

// The output function of splitmix64 (Steele, Lea, Flood 2014): a bijection, so that ids that differ
// have hashes that differ.
MERLIN_ALWAYS_INLINE uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

MERLIN_ALWAYS_INLINE uint64_t hash_of(int64_t id) { return mix(static_cast<uint64_t>(id)); }

MERLIN_ALWAYS_INLINE uint32_t saturated(uint64_t x) {
  return x < UINT32_MAX ? static_cast<uint32_t>(x) : UINT32_MAX;
}

MERLIN_ALWAYS_INLINE int leading_zeros(uint64_t x) {
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(x));
#else
  return __builtin_clzll(x);
#endif
}

// Fixed point: 31 fractional bits.
constexpr uint64_t kOne = uint64_t{1} << 31;

// 2^(2^-i), i = 1 ... kLogShift, and their inverses, rounded down.
MERLIN_ALWAYS_INLINE uint64_t root_of_two(int i) {
  constexpr uint32_t kRoots[] = {3037000499u, 2553802833u, 2341847523u, 2242560871u,
                                 2194507416u, 2170868211u, 2159144271u, 2153306066u,
                                 2150392886u, 2148937775u, 2148210588u, 2147847087u};
  return kRoots[i - 1];
}

MERLIN_ALWAYS_INLINE uint64_t inverse_root(int i) {
  constexpr uint32_t kInverses[] = {1518500249u, 1805811301u, 1969251187u, 2056437386u,
                                    2101467501u, 2124350982u, 2135885998u, 2141676972u,
                                    2144578345u, 2146030504u, 2146756953u, 2147120269u};
  return kInverses[i - 1];
}

// 2^(exponent / 2^kLogShift) in fixed point; saturates.
MERLIN_ALWAYS_INLINE uint64_t power_of_two(int64_t exponent) {
  const int64_t whole = exponent >> kLogShift;
  if (whole > 31) return UINT64_MAX;
  if (whole < -31) return 0;
  uint64_t x = kOne;
  for (int i = 1; i <= kLogShift; ++i)
    if ((exponent >> (kLogShift - i)) & 1) x = x * root_of_two(i) >> 31;
  return whole >= 0 ? x << whole : x >> -whole;
}

// log2 of x >= 1 (fixed point) in units of 2^-kLogShift. Rounded up with the probability, over
// `random`, that makes the power of two of the result be x on average.
MERLIN_ALWAYS_INLINE int64_t logarithm(uint64_t x, uint32_t random) {
  const int whole = 63 - leading_zeros(x) - 31;
  uint64_t m = x >> whole;  // in [1, 2)
  int64_t log = int64_t{whole} << kLogShift;
  for (int i = 1; i <= kLogShift; ++i)
    if (m >= root_of_two(i)) {
      m = m * inverse_root(i) >> 31;
      if (m < kOne) m = kOne;
      log += int64_t{1} << (kLogShift - i);
    }
  const uint64_t step = root_of_two(kLogShift) - kOne;
  return log + ((random * step) >> 32 < m - kOne ? 1 : 0);
}

// Pins number assigns modulo 2^16 - 1, from 1: a slot that nobody asked for during as many assigns
// looks pinned again for a while, which costs it nothing but its turn to go.
constexpr int64_t kPinNumbers = 65535;

// What is the same for all ids of a call.
struct Step {
  IdPolicy policy;
  uint64_t clock;
  uint32_t latest;                // the score of an id seen now, where it doesn't depend on counts
  uint32_t epoch_bits;            // EpochLFU: the high bits
  int64_t log_base;               // kDecayedLfu: what a count of 1 is worth now
  uint64_t admit_key, round_key;  // draws of this step
  int64_t lowest_kept;            // scores below this may go
  int32_t pin_place, pin_window;  // pins of this age or less hold; -1: none does
  uint16_t pin;                   // of the slots that this step returns

  MERLIN_ALWAYS_INLINE static Step of(const int64_t* meters, const IdPolicy& policy) {
    Step s;
    s.policy = policy;
    s.clock = static_cast<uint64_t>(meters[kClock]);
    const uint32_t epoch = static_cast<uint32_t>(meters[kEpoch]) << kEpochShift;
    s.epoch_bits = epoch;
    s.latest = saturated(s.clock);
    if (policy.kind == PolicyKind::kEpochLru) {
      const int64_t since = meters[kClock] - meters[kEpochBegan], most = (1 << kEpochShift) - 1;
      s.latest = epoch | static_cast<uint32_t>(since < most ? since : most);
    }
    s.log_base = static_cast<int64_t>((s.clock << kLogShift) / policy.half_life);
    s.admit_key = mix(2 * s.clock);
    s.round_key = mix(2 * s.clock + 1);
    s.lowest_kept = policy.kind == PolicyKind::kTtl ? int64_t{s.latest} - policy.ttl + 1
                                                    : int64_t{UINT32_MAX} + 1;
    const int64_t open = meters[kClock] - meters[kReleased] - 1;
    s.pin_window = static_cast<int32_t>(open < policy.open_routes ? open : policy.open_routes);
    s.pin_place = static_cast<int32_t>(meters[kClock] % kPinNumbers);
    s.pin = static_cast<uint16_t>(s.pin_place + 1);
    return s;
  }

  // Without branches: these are asked of whole buckets.
  MERLIN_ALWAYS_INLINE bool pinned(uint16_t pin_of_slot) const {
    int32_t age = pin_place - (int32_t{pin_of_slot} - 1);
    age += age >> 31 & static_cast<int32_t>(kPinNumbers);
    return (pin_of_slot != 0) & (age <= pin_window);
  }

  MERLIN_ALWAYS_INLINE bool may_go(uint32_t score, uint16_t pin_of_slot) const {
    return !pinned(pin_of_slot) & (int64_t{score} < lowest_kept);
  }

  // Of an id in this step: uniform in [0, 1).
  MERLIN_ALWAYS_INLINE double draw(uint64_t hash) const {
    return static_cast<double>(mix(hash ^ admit_key) >> 11) * 0x1p-53;
  }

  MERLIN_ALWAYS_INLINE bool admitted_by_chance(uint64_t hash) const {
    return policy.admit_probability >= 1 || draw(hash) < policy.admit_probability;
  }

  // Whether an id takes the row of the one with score `theirs`. It does if it was seen more often,
  // `seen` times as far as is known; else each of its `times` sightings of this step does so with
  // probability 1 / (their count + 1), and then it counts as one more than the other. So counts are
  // right on average without memory for ids that have no row (randomized admission policy, Ben
  // Basat, Chen, Einziger, Friedman 2019). *score, of the id itself, grows accordingly.
  MERLIN_ALWAYS_INLINE bool wins(uint32_t theirs, uint32_t times, uint32_t seen, uint64_t hash,
                                 uint32_t* score) const {
    double count = 0;
    switch (policy.contest ? policy.kind : PolicyKind::kLru) {
      case PolicyKind::kLfu:
        count = theirs;
        break;
      case PolicyKind::kDecayedLfu:
        count = static_cast<double>(power_of_two(int64_t{theirs} - log_base)) * 0x1p-31;
        break;
      case PolicyKind::kEpochLfu:
        if (theirs < epoch_bits) return true;
        count = theirs - epoch_bits;
        break;
      case PolicyKind::kCustom:
        return *score >= theirs;
      default:
        return true;
    }
    if (seen <= count && draw(hash) * (count + 1) >= times) return false;
    const uint32_t more = next(theirs, 1, 0, hash);
    *score = *score < more ? more : *score;
    return true;
  }

  MERLIN_ALWAYS_INLINE uint32_t epoch_count(uint64_t count) const {
    constexpr uint32_t kMost = (1u << kEpochShift) - 1;
    return epoch_bits | (count < kMost ? static_cast<uint32_t>(count) : kMost);
  }

  MERLIN_ALWAYS_INLINE uint32_t decayed(uint64_t before, uint32_t count, uint64_t hash) const {
    const uint64_t more = uint64_t{count} << 31;
    const uint64_t sum = before > UINT64_MAX - more ? UINT64_MAX : before + more;
    const uint32_t random = static_cast<uint32_t>(mix(hash ^ round_key) >> 32);
    return saturated(static_cast<uint64_t>(log_base + logarithm(sum, random)));
  }

  // Of an id seen for the first time, `count` times; kCustom: with the score given.
  MERLIN_ALWAYS_INLINE uint32_t first(uint32_t count, uint32_t given, uint64_t hash) const {
    switch (policy.kind) {
      case PolicyKind::kLfu:
        return count;
      case PolicyKind::kDecayedLfu:
        return decayed(0, count, hash);
      case PolicyKind::kEpochLfu:
        return epoch_count(count);
      case PolicyKind::kCustom:
        return given;
      default:
        return latest;
    }
  }

  // Of an id that had `score` and is seen again, `count` times in all.
  MERLIN_ALWAYS_INLINE uint32_t next(uint32_t score, uint32_t count, uint32_t given,
                                     uint64_t hash) const {
    switch (policy.kind) {
      case PolicyKind::kLfu:
        return saturated(uint64_t{score} + count);
      case PolicyKind::kDecayedLfu: {
        const uint32_t now = decayed(power_of_two(int64_t{score} - log_base), count, hash);
        return now < score ? score : now;
      }
      case PolicyKind::kEpochLfu:
        return epoch_count((score & ((1u << kEpochShift) - 1)) + uint64_t{count});
      case PolicyKind::kCustom:
        return given;
      default:
        return latest;
    }
  }
};

}  // namespace merlin
