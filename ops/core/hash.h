// Hashes of ids: public functions, the same for ever and on every machine, since rows of trained
// tables are a function of them.
#pragma once

#include <cstdint>

#include "types.h"

namespace merlin {

MERLIN_ALWAYS_INLINE constexpr uint64_t rotate_left(uint64_t value, int bits) {
  return value << bits | value >> (64 - bits);
}

// XXH64 (Collet, https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) of the eight bytes of an
// id, lowest first.
MERLIN_ALWAYS_INLINE constexpr uint64_t xxh64(uint64_t id, uint64_t seed) {
  constexpr uint64_t kPrime1 = 0x9e3779b185ebca87u, kPrime2 = 0xc2b2ae3d27d4eb4fu,
                     kPrime3 = 0x165667b19e3779f9u, kPrime4 = 0x85ebca77c2b2ae63u,
                     kPrime5 = 0x27d4eb2f165667c5u;
  uint64_t hash = seed + kPrime5 + 8;
  hash ^= rotate_left(id * kPrime2, 31) * kPrime1;
  hash = rotate_left(hash, 27) * kPrime1 + kPrime4;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

// A hash as a number in [0, size): floor(hash * size / 2^64), which takes its high bits and needs
// no division (Lemire, "Fast Random Integer Generation in an Interval", 2019).
MERLIN_ALWAYS_INLINE constexpr int64_t scaled(uint64_t hash, uint64_t size) {
  return static_cast<int64_t>(static_cast<unsigned __int128>(hash) * size >> 64);
}

// The seed of the k-th of several independent hashes under one salt.
MERLIN_ALWAYS_INLINE constexpr uint64_t seed_of(int64_t k, int64_t salt) {
  return xxh64(static_cast<uint64_t>(k), static_cast<uint64_t>(salt));
}

}  // namespace merlin
