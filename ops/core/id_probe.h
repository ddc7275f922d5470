// Ids a block at a time, so that their cache misses are under way at once: first all tags, then of
// each id the key that its tag points at and what a hit would write.
#pragma once

#include "id_slots.h"

namespace merlin {

constexpr int kIdsABlock = 64;

// An array a field: a struct that is copied whole through memory waits for its parts to be stored.
struct Probe {
  uint32_t first[kIdsABlock], second[kIdsABlock], bits[kIdsABlock];
  uint8_t tags[kIdsABlock];

  MERLIN_ALWAYS_INLINE IdPlace place(int i) const { return {first[i], second[i], tags[i]}; }
};

// hash(i) of n <= kIdsABlock ids.
template <bool Write, class Hash>
MERLIN_ALWAYS_INLINE void probe(const IdTable& table, const IdSpace& space, int n, const Hash& hash,
                                Probe* out) {
  for (int i = 0; i < n; ++i) {
    const IdPlace place = space.place(hash(i));
    __builtin_prefetch(table.tags + place.first);
    __builtin_prefetch(table.tags + place.second);
    out->first[i] = place.first;
    out->second[i] = place.second;
    out->tags[i] = place.tag;
  }
  for (int i = 0; i < n; ++i) {
    out->bits[i] = candidates(table.tags, out->place(i));
    if (out->bits[i] == 0) continue;
    const int64_t slot = out->place(i).slot(lowest_bit(out->bits[i]));
    __builtin_prefetch(table.keys + slot);
    if (table.dynamic()) __builtin_prefetch(table.rows + slot);
    if (!Write) continue;
    __builtin_prefetch(table.scores + slot, 1);
    __builtin_prefetch(table.pins + slot, 1);
  }
}

MERLIN_ALWAYS_INLINE bool skipped(const IdList& list, int64_t id) {
  return list.padded && id == list.padding;
}

}  // namespace merlin
