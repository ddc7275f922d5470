// Which missing ids were seen often enough to own a row: a counting Bloom filter whose queries read
// one cache line (Putze, Sanders, Singler 2007), with conservative update (Estan, Varghese 2002).
//
// A line holds 64 counters of 8 bits. An id has four of them, one in each quarter of its line; its
// estimate is their minimum, and never below the sightings since it was last halved. Counting
// raises those of the four that are below the new estimate. A shard's counters are halved at the
// end of the call after which its counted sightings reach half their number: of four windows (a
// quarter, a half, one and two of it) this one kept most of the ids seen most. In the middle of a
// window of rare ids an id never seen before is taken for one seen before in under 15% of cases,
// and for one seen twice in under 1% (tests/id_edit_test.cc).
#pragma once

#include "id_policies.h"

namespace merlin {

struct CountingFilter {
  uint8_t* counters;  // [V * lines * 64]
  int64_t lines;      // of a shard

  struct Place {
    uint8_t* line;
    uint32_t within;  // four times four bits
  };

  MERLIN_ALWAYS_INLINE Place place(uint64_t hash, int64_t shard) const {
    const uint64_t x = hash * 0xd6e8feb86659fd93u;
    const int64_t line = static_cast<int64_t>((x >> 32) * static_cast<uint64_t>(lines) >> 32);
    return {counters + (shard * lines + line) * kFilterLine,
            static_cast<uint32_t>(x >> 16) & 0xffff};
  }

  // Counts `count` more sightings; returns the new estimate, at most 255.
  MERLIN_ALWAYS_INLINE static uint32_t add(const Place& place, uint32_t count) {
    uint32_t least = 255;
    for (int q = 0; q < 4; ++q) {
      const uint32_t c = place.line[16 * q + ((place.within >> (4 * q)) & 15)];
      least = c < least ? c : least;
    }
    const uint32_t now = count < 255 - least ? least + count : 255;
    for (int q = 0; q < 4; ++q) {
      uint8_t& c = place.line[16 * q + ((place.within >> (4 * q)) & 15)];
      if (c < now) c = static_cast<uint8_t>(now);
    }
    return now;
  }

  // How many sightings a shard counts before its counters are halved.
  MERLIN_ALWAYS_INLINE int64_t window() const { return lines * kFilterLine / 2; }

  // Halves a shard's counters while its sightings, *fill, fill a window.
  MERLIN_ALWAYS_INLINE void age(int64_t shard, int64_t* fill) const {
    uint8_t* c = counters + shard * lines * kFilterLine;
    for (; *fill >= window(); *fill /= 2)
      for (int64_t i = 0; i < lines * kFilterLine; ++i) c[i] >>= 1;
  }
};

// Whether a missing id that was seen *count times now gets a row; *count becomes its sightings.
MERLIN_ALWAYS_INLINE bool admits(const IdTable& table, const Step& step, uint64_t hash,
                                 int64_t shard, uint32_t* count) {
  if (step.policy.admit_after > 1) {
    const CountingFilter filter = {table.filter, table.shape.filter_lines};
    table.meters[kFill + shard] += *count < 255 ? *count : 255;
    const uint32_t seen = CountingFilter::add(filter.place(hash, shard), *count);
    *count = *count < seen ? seen : *count;
    if (seen < static_cast<uint32_t>(step.policy.admit_after)) return false;
  }
  return step.admitted_by_chance(hash);
}

}  // namespace merlin
