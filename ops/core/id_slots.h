// Where an id's slots are, whether it is in one of them, and which of them a newcomer gets.
#pragma once

#include "id_policies.h"

#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
#include <emmintrin.h>
#endif

namespace merlin {

constexpr int64_t kNoSlot = -1;

// The slots, of the two buckets, that hold `tag`: a bit for each.
MERLIN_ALWAYS_INLINE uint32_t matches(const uint8_t* tags, uint8_t tag) {
#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tags));
  return static_cast<uint32_t>(
      _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)))));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kBucket; ++i) bits |= static_cast<uint32_t>(tags[i] == tag) << i;
  return bits;
#endif
}

MERLIN_ALWAYS_INLINE int lowest_bit(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

// Of 16 bits, without the instruction that baseline x86-64 lacks.
MERLIN_ALWAYS_INLINE uint32_t bits_set(uint32_t x) {
  x -= (x >> 1) & 0x5555;
  x = (x & 0x3333) + ((x >> 2) & 0x3333);
  x = (x + (x >> 4)) & 0x0f0f;
  return (x + (x >> 8)) & 31;
}

// The two buckets of an id, by their first slots, and its tag. They are the same one for some ids
// of a dynamic table (bucket b must become 2b or 2b + 1 when the index doubles), and where a shard
// has one bucket.
struct IdPlace {
  uint32_t first, second;
  uint8_t tag;

  // The slot of bit i of the matches of both buckets. A branch would be guessed wrong half the
  // time.
  MERLIN_ALWAYS_INLINE int64_t slot(int i) const {
    const uint32_t to_second = second - first - static_cast<uint32_t>(kBucket);
    return first + static_cast<uint32_t>(i) + (to_second & (0u - (i >= kBucket)));
  }
};

// From hashes to places.
struct IdSpace {
  int shard_bits;
  uint64_t active;              // buckets of a shard in use
  uint64_t others;              // of them, those that may be an id's second one
  int64_t of_shard, of_bucket;  // slots from one to the next
  bool grows;
  bool full;  // no slot is empty

  MERLIN_ALWAYS_INLINE static IdSpace of(const IdTable& table) {
    const IdShape& shape = table.shape;
    IdSpace s;
    s.shard_bits = 63 - leading_zeros(static_cast<uint64_t>(shape.shards));
    s.grows = table.dynamic();
    const int64_t active = s.grows ? table.meters[kActive] : shape.buckets;
    s.active = static_cast<uint64_t>(active > 0 ? active : shape.initial);
    s.full = !s.grows && table.meters[kUsed] == shape.slots;
    s.others = s.grows || s.active == 1 ? s.active : s.active - 1;
    // Shards are ranges of slots, of rows therefore, where the slot is the row. Those of a dynamic
    // table take turns, so that the part in use is the beginning of each array.
    s.of_shard = kBucket * (s.grows ? 1 : shape.buckets);
    s.of_bucket = kBucket * (s.grows ? shape.shards : 1);
    return s;
  }

  MERLIN_ALWAYS_INLINE int64_t shard(uint64_t hash) const {
    return static_cast<int64_t>((hash >> 1) >> (63 - shard_bits));
  }

  MERLIN_ALWAYS_INLINE IdPlace place(uint64_t hash) const {
    const uint64_t x = (hash << shard_bits) >> 32, y = (hash * 0x9fb21c651e98df25u) >> 32;
    const uint64_t first = x * active >> 32;
    uint64_t second = y * others >> 32;
    second += (others < active) & (second >= first);
    const int64_t start = shard(hash) * of_shard;
    const uint8_t low = static_cast<uint8_t>(hash);
    return {static_cast<uint32_t>(start + static_cast<int64_t>(first) * of_bucket),
            static_cast<uint32_t>(start + static_cast<int64_t>(second) * of_bucket),
            static_cast<uint8_t>(low == 0 ? 1 : low)};
  }

  MERLIN_ALWAYS_INLINE int64_t active_slots(const IdShape& shape) const {
    return static_cast<int64_t>(active) * shape.shards * kBucket;
  }
};

MERLIN_ALWAYS_INLINE uint32_t candidates(const uint8_t* tags, const IdPlace& place) {
  return matches(tags + place.first, place.tag) | matches(tags + place.second, place.tag)
                                                      << kBucket;
}

MERLIN_ALWAYS_INLINE int64_t slot_among(const IdTable& table, const IdPlace& place, uint32_t bits,
                                        int64_t id) {
  for (; bits != 0; bits &= bits - 1) {
    const int64_t slot = place.slot(lowest_bit(bits));
    if (table.keys[slot] == id) return slot;
  }
  return kNoSlot;
}

MERLIN_ALWAYS_INLINE int64_t find_slot(const IdTable& table, const IdPlace& place, int64_t id) {
  return slot_among(table, place, candidates(table.tags, place), id);
}

// The lowest empty slot of the bucket that has more of them, or of the first.
MERLIN_ALWAYS_INLINE int64_t empty_slot(const IdTable& table, const IdPlace& place) {
  const uint32_t first = matches(table.tags + place.first, 0);
  const uint32_t second = matches(table.tags + place.second, 0);
  if ((first | second) == 0) return kNoSlot;
  return bits_set(second) > bits_set(first) ? int64_t{place.second} + lowest_bit(second)
                                            : int64_t{place.first} + lowest_bit(first);
}

// A slot's place among those that may go: the lowest score first, of equal ones the lowest slot.
constexpr uint64_t kStays = UINT64_MAX;

MERLIN_ALWAYS_INLINE uint64_t rank(uint32_t score, int64_t slot) {
  return uint64_t{score} << 32 | static_cast<uint64_t>(slot);
}

MERLIN_ALWAYS_INLINE uint64_t first_to_go_of_any(const IdTable& table, int64_t start,
                                                 const Step& step) {
  uint64_t best = kStays;
  for (int64_t slot = start; slot < start + kBucket; ++slot) {
    const uint32_t score = table.scores[slot];
    const bool goes = (table.tags[slot] != 0) & step.may_go(score, table.pins[slot]);
    const uint64_t here = goes ? rank(score, slot) : kStays;
    best = here < best ? here : best;
  }
  return best;
}

#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
// The same for a bucket without empty slots.
MERLIN_ALWAYS_INLINE uint64_t first_to_go_of_full(const IdTable& table, int64_t start,
                                                  const Step& step) {
  if (step.lowest_kept <= 0) return kStays;
  const __m128i sign = _mm_set1_epi32(INT32_MIN), none = _mm_set1_epi32(INT32_MAX);
  const __m128i zero = _mm_setzero_si128(), one = _mm_set1_epi16(1);
  const __m128i place = _mm_set1_epi16(static_cast<int16_t>(step.pin_place));
  const __m128i window = _mm_set1_epi16(static_cast<int16_t>(step.pin_window));
  const __m128i highest =
      _mm_xor_si128(_mm_set1_epi32(static_cast<int32_t>(step.lowest_kept - 1)), sign);
  const __m128i half_sign = _mm_set1_epi16(INT16_MIN);
  __m128i scores[4], may[4], least = none;
  for (int h = 0; h < 2; ++h) {
    const __m128i pins =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.pins + start + 8 * h));
    // Modulo 2^16, then one less where that wrapped: modulo 2^16 - 1.
    const __m128i numbers = _mm_sub_epi16(pins, one);
    const __m128i wraps =
        _mm_cmpgt_epi16(_mm_xor_si128(numbers, half_sign), _mm_xor_si128(place, half_sign));
    const __m128i age = _mm_add_epi16(_mm_sub_epi16(place, numbers), wraps);
    __m128i free = _mm_cmpeq_epi16(pins, zero);
    const __m128i held = _mm_cmpeq_epi16(_mm_subs_epu16(age, window), zero);
    free = step.pin_window < 0
               ? _mm_cmpeq_epi16(zero, zero)
               : _mm_or_si128(free, _mm_xor_si128(held, _mm_cmpeq_epi16(zero, zero)));
    may[2 * h] = _mm_unpacklo_epi16(free, free);
    may[2 * h + 1] = _mm_unpackhi_epi16(free, free);
  }
  for (int q = 0; q < 4; ++q) {
    // With the sign changed, signed comparisons are those of unsigned numbers.
    const __m128i score = _mm_xor_si128(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.scores + start + 4 * q)), sign);
    may[q] = _mm_andnot_si128(_mm_cmpgt_epi32(score, highest), may[q]);
    scores[q] = _mm_or_si128(_mm_and_si128(may[q], score), _mm_andnot_si128(may[q], none));
    const __m128i less = _mm_cmpgt_epi32(least, scores[q]);
    least = _mm_or_si128(_mm_and_si128(less, scores[q]), _mm_andnot_si128(less, least));
  }
  for (const int turn : {0, 1}) {
    const __m128i other = turn == 0 ? _mm_shuffle_epi32(least, _MM_SHUFFLE(1, 0, 3, 2))
                                    : _mm_shuffle_epi32(least, _MM_SHUFFLE(2, 3, 0, 1));
    const __m128i less = _mm_cmpgt_epi32(least, other);
    least = _mm_or_si128(_mm_and_si128(less, other), _mm_andnot_si128(less, least));
  }
  uint32_t bits = 0;
  for (int q = 0; q < 4; ++q) {
    const __m128i here = _mm_and_si128(may[q], _mm_cmpeq_epi32(scores[q], least));
    bits |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(here))) << (4 * q);
  }
  if (bits == 0) return kStays;
  const uint32_t score = static_cast<uint32_t>(_mm_cvtsi128_si32(least)) ^ 0x80000000u;
  return rank(score, start + lowest_bit(bits));
}
#endif

// The slot of the lowest score that may go, of equal ones the lowest.
MERLIN_ALWAYS_INLINE int64_t victim(const IdTable& table, const IdPlace& place, const Step& step) {
  uint64_t first, second;
#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
  if (!table.dynamic()) {
    first = first_to_go_of_full(table, place.first, step);
    second = first_to_go_of_full(table, place.second, step);
  } else
#endif
  {
    first = first_to_go_of_any(table, place.first, step);
    second = first_to_go_of_any(table, place.second, step);
  }
  const uint64_t best = second < first ? second : first;
  return best == kStays ? kNoSlot : static_cast<int64_t>(best & UINT32_MAX);
}

MERLIN_ALWAYS_INLINE int64_t row_of(const IdTable& table, int64_t slot) {
  return table.dynamic() ? table.rows[slot] : slot;
}

// Of an id without a row of its own.
MERLIN_ALWAYS_INLINE int64_t row_without(const IdTable& table, const IdPolicy& policy,
                                         uint64_t hash) {
  return policy.oov_rows == 0
             ? kNoLine
             : table.shape.max_rows +
                   static_cast<int64_t>(hash % static_cast<uint64_t>(policy.oov_rows));
}

MERLIN_ALWAYS_INLINE void fill_slot(const IdTable& table, int64_t slot, uint8_t tag, int64_t id,
                                    uint32_t score, uint16_t pin) {
  table.tags[slot] = tag;
  table.keys[slot] = id;
  table.scores[slot] = score;
  table.pins[slot] = pin;
}

MERLIN_ALWAYS_INLINE void clear_slot(const IdTable& table, int64_t slot) {
  fill_slot(table, slot, 0, 0, 0, 0);
  if (table.dynamic()) table.rows[slot] = 0;
}

}  // namespace merlin
