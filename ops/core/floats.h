// Numbers at rest (float32, bfloat16, float16) as sixteen float32 lanes, and back. Included only by
// files that are compiled once for each instruction set, hence the namespace.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace merlin {
namespace MERLIN_ISA {

// One cache line of float32. The compiler lowers it to what the instruction set has, which keeps
// the order of sums the same everywhere.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t LaneBits __attribute__((vector_size(64)));
typedef int32_t LaneInts __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t HalfBits __attribute__((vector_size(32), aligned(2), may_alias));
constexpr int kLanes = 16;

#define MERLIN_INLINE static inline __attribute__((always_inline))

// Writes 16 numbers to memory without reading their cache line first; `to` is aligned to 64 bytes.
MERLIN_INLINE void store_past_caches(float* to, Lanes x) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, reinterpret_cast<__m512>(x));
#elif defined(__SSE2__)
  __m128 quarters[4];
  memcpy(quarters, &x, sizeof(x));
  for (int i = 0; i < 4; ++i) _mm_stream_ps(to + 4 * i, quarters[i]);
#else
  memcpy(to, &x, sizeof(x));
#endif
}

// Other threads see what this one has written so.
MERLIN_INLINE void end_of_stores_past_caches() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

template <class To, class From>
MERLIN_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

struct Float32 {
  using Storage = float;
  MERLIN_INLINE float widen(float x) { return x; }
  MERLIN_INLINE float narrow(float x) { return x; }
  MERLIN_INLINE Lanes widen(const float* p) { return *reinterpret_cast<const Lanes*>(p); }
};

struct Bfloat16 {
  using Storage = uint16_t;
  MERLIN_INLINE float widen(uint16_t x) { return bits<float>(uint32_t{x} << 16); }
  // Round to nearest even; a NaN stays one.
  MERLIN_INLINE uint16_t narrow(float x) {
    const uint32_t u = bits<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  MERLIN_INLINE Lanes widen(const uint16_t* p) {
    const HalfBits h = *reinterpret_cast<const HalfBits*>(p);
    return bits<Lanes>(__builtin_convertvector(h, LaneBits) << 16);
  }
};

struct Float16 {
  using Storage = uint16_t;
#if defined(__F16C__)
  MERLIN_INLINE float widen(uint16_t x) { return _cvtsh_ss(x); }
  MERLIN_INLINE uint16_t narrow(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
  MERLIN_INLINE float widen(uint16_t x) {
    const uint32_t sign = (x & 0x8000u) << 16, rest = x & 0x7fffu;
    if (rest >= 0x7c00u) return bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // 2^112 rebases the exponent and makes subnormals come out exactly.
    const float magnitude = bits<float>(rest << 13) * bits<float>(uint32_t{0x77800000u});
    return bits<float>(sign | bits<uint32_t>(magnitude));
  }
  MERLIN_INLINE uint16_t narrow(float x) {
    const uint32_t u = bits<uint32_t>(x), sign = (u >> 16) & 0x8000u, rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and more
    if (rest < 0x38800000u) {  // under 2^-14: adding 0.5 rounds to a multiple of 2^-24
      const float shifted = bits<float>(rest) + 0.5f;
      return static_cast<uint16_t>(sign | (bits<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u) - 0x38000000u;
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
#endif
  MERLIN_INLINE Lanes widen(const uint16_t* p) {
#if defined(__AVX512F__)
    __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return bits<Lanes>(x);
#elif defined(__F16C__)
    float x[kLanes];
    _mm256_storeu_ps(x, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    _mm256_storeu_ps(x + 8,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8))));
    return *reinterpret_cast<const Lanes*>(x);
#else
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = widen(p[i]);
    return *reinterpret_cast<const Lanes*>(x);
#endif
  }
};

}  // namespace MERLIN_ISA
}  // namespace merlin
