// What an id table must do, one id after the other, on std::map and in words of its own: what the
// core is compared with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/id_table.h"
#include "tests/cases.h"

namespace merlin {

// The arrays of a table.
struct IdMemory {
  explicit IdMemory(const IdShape& shape, bool dynamic = false)
      : shape(shape),
        tags(shape.slots),
        filter(shape.filter_size()),
        keys(shape.slots),
        taken(dynamic ? shape.taken_words() : 0),
        meters(shape.meters()),
        scores(shape.slots),
        pins(shape.slots),
        rows(dynamic ? shape.slots : 0) {}

  IdTable table() {
    return {tags.data(),
            keys.data(),
            scores.data(),
            pins.data(),
            rows.empty() ? nullptr : rows.data(),
            taken.empty() ? nullptr : taken.data(),
            filter.empty() ? nullptr : filter.data(),
            meters.data(),
            shape};
  }
  bool operator==(const IdMemory& o) const {
    return tags == o.tags && filter == o.filter && keys == o.keys && taken == o.taken &&
           meters == o.meters && scores == o.scores && pins == o.pins && rows == o.rows;
  }

  IdShape shape;
  std::vector<uint8_t> tags, filter;
  std::vector<int64_t> keys, taken, meters;
  std::vector<uint32_t> scores;
  std::vector<uint16_t> pins;
  std::vector<int32_t> rows;
};

struct Seen {
  int64_t id, count, score;
};

inline uint64_t splitmix(uint64_t state) {
  uint64_t z = state + 0x9e3779b97f4a7c15u;
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9u;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebu;
  z ^= z >> 31;
  return z;
}

class IdOracle {
 public:
  struct Slot {
    int64_t id, row;
    double score;
    int64_t seen;  // the last assign that returned it
  };

  IdOracle(const IdShape& shape, const IdPolicy& policy, bool dynamic)
      : shape(shape), policy(policy), dynamic(dynamic), buckets(shape.initial) {
    for (int64_t row = 0; row < shape.max_rows; ++row) free.insert(row);
  }

  // The rows of distinct ids. False: no room; nothing done, or (crowded) no new id came in.
  bool assign(const std::vector<Seen>& ids, std::map<int64_t, int64_t>* rows) {
    std::map<uint64_t, Seen> sorted;
    for (const Seen& s : ids) sorted[splitmix(s.id)] = s;
    std::vector<Seen> missing, admitted;
    std::map<int64_t, int64_t> times;  // of missing ids, in this call
    for (const auto& [hash, s] : sorted)
      if (where.count(s.id) == 0) missing.push_back(s);
    if (dynamic && !policy.evict && missing.size() > free.size()) return false;
    ++clock;
    crowded = false;
    for (const auto& [hash, s] : sorted) {
      looked_up += s.count;
      const auto found = where.find(s.id);
      if (found == where.end()) continue;
      hits += s.count;
      Slot& slot = slots[found->second];
      slot.score = touched(slot.score, s);
      slot.seen = clock;
      (*rows)[s.id] = slot.row;
    }
    for (Seen s : missing) {
      times[s.id] = s.count;
      bool enough = true;
      if (policy.admit_after > 1) {
        s.count = std::max(s.count, count(s));
        enough = s.count >= policy.admit_after;
      }
      if (enough && draw(s.id) < policy.admit_probability) {
        admitted.push_back(s);
      } else {
        not_admitted += times[s.id];
        (*rows)[s.id] = without(s.id);
      }
    }
    age_filter();
    const int64_t wanted = std::min<int64_t>(slots.size() + admitted.size(), shape.max_rows);
    while (dynamic && 5 * wanted > 3 * buckets * shape.shards * 16 && grow()) {
    }
    for (const Seen& s : admitted) {
      lost = false;
      const int64_t slot = insert(s.id, touched(-1, s), clock, times[s.id], s.count);
      (*rows)[s.id] = slot < 0 ? without(s.id) : slots[slot].row;
      if (slot >= 0) continue;
      const bool waits = lost || policy.kind == PolicyKind::kTtl;
      (waits ? not_admitted : overflowed) += times[s.id];
      crowded |= !waits;
    }
    crowded &= dynamic && !policy.evict;
    if (!crowded) return true;
    for (const Seen& s : admitted)
      if (where.count(s.id) > 0) {
        forget(s.id);
        --inserted;
      }
    return false;
  }

  // Of an id in this step, uniform in [0, 1).
  double draw(int64_t id) const {
    return std::ldexp(static_cast<double>(splitmix(splitmix(id) ^ splitmix(2 * clock)) >> 11), -53);
  }

  // The score of a newcomer that takes the row of one with score `theirs`, or -1: it doesn't.
  double contest(double theirs, int64_t id, double score, int64_t times, int64_t seen) const {
    const double now = std::floor(4096.0 * clock / policy.half_life), era = epoch * 1048576.0;
    const bool decays = policy.kind == PolicyKind::kDecayedLfu;
    if (policy.kind == PolicyKind::kCustom) return score < theirs ? -1 : score;
    if (policy.kind == PolicyKind::kEpochLfu && theirs < era) return score;
    if (policy.kind == PolicyKind::kEpochLfu) theirs -= era;
    if (policy.kind != PolicyKind::kLfu && policy.kind != PolicyKind::kEpochLfu && !decays)
      return score;
    const double count = decays ? std::exp2((theirs - now) / 4096) : theirs;
    if (static_cast<double>(seen) <= count && draw(id) >= static_cast<double>(times) / (count + 1))
      return -1;
    const double higher = decays                            ? now + 4096 * std::log2(count + 1)
                          : policy.kind == PolicyKind::kLfu ? std::min(count + 1, 4294967295.0)
                                                            : era + std::min(count + 1, 1048575.0);
    return std::max(score, higher);
  }

  int64_t without(int64_t id) const {
    return policy.oov_rows == 0 ? -1 : shape.max_rows + splitmix(id) % policy.oov_rows;
  }

  // A slot for a missing id, or -1; one that was seen 0 times contests nothing.
  int64_t insert(int64_t id, double score, int64_t last, int64_t times, int64_t seen) {
    int64_t slot = -1;
    if (!free.empty()) {
      slot = empty(id);
      while (slot < 0 && dynamic && grow()) slot = empty(id);
      if (slot < 0 && dynamic) slot = make_room(id);
    }
    Slot made = {id, slot, score, last};
    if (slot < 0) {
      if (dynamic && !policy.evict) return -1;
      slot = victim(id);
      if (slot < 0) return -1;
      const Slot& old = slots[slot];
      if (policy.contest && times > 0) made.score = contest(old.score, id, score, times, seen);
      lost = made.score < 0;
      if (lost) return -1;
      made.row = old.row;
      changes.push_back({old.row, {true, old.id}, id});
      where.erase(old.id);
      ++evicted;
    } else {
      if (dynamic) made.row = *free.begin();
      free.erase(made.row);
      changes.push_back({made.row, {false, 0}, id});
    }
    ++inserted;
    slots[slot] = made;
    where[id] = slot;
    return slot;
  }

  void forget(int64_t id) {
    const int64_t slot = where.at(id);
    free.insert(slots[slot].row);
    slots.erase(slot);
    where.erase(id);
  }

  bool pinned(const Slot& slot) const {
    return slot.seen > released && clock - slot.seen <= policy.open_routes;
  }

  // Of an id with `score` (-1: none yet) that is seen now.
  double touched(double score, const Seen& s) const {
    const double before = std::max(score, 0.0);
    switch (policy.kind) {
      case PolicyKind::kLru:
      case PolicyKind::kTtl:
        return static_cast<double>(clock);
      case PolicyKind::kEpochLru:
        return epoch * 1048576.0 + std::min<int64_t>(clock - epoch_began, 1048575);
      case PolicyKind::kLfu:
        return std::min(before + s.count, 4294967295.0);
      case PolicyKind::kEpochLfu:
        return epoch * 1048576.0 + std::min(std::fmod(before, 1048576.0) + s.count, 1048575.0);
      case PolicyKind::kCustom:
        return static_cast<double>(s.score);
      case PolicyKind::kDecayedLfu: {
        // Exact; the table's is one of the two whole numbers around it.
        const double now = std::floor(4096.0 * clock / policy.half_life);
        const double count = score < 0 ? 0 : std::exp2((score - now) / 4096);
        return now + 4096 * std::log2(count + s.count);
      }
    }
    return 0;
  }

  std::pair<int64_t, int64_t> buckets_of(int64_t id) const {
    using Wide = unsigned __int128;
    const uint64_t hash = splitmix(id);
    uint64_t rest = hash, shard = 0;
    for (int64_t s = shape.shards; s > 1; s /= 2, rest <<= 1) shard = 2 * shard + (rest >> 63);
    const auto scale = [](uint64_t x, int64_t n) {
      return static_cast<int64_t>(Wide{x >> 32} * static_cast<uint64_t>(n) >> 32);
    };
    const uint64_t other = hash * 0x9fb21c651e98df25u;
    int64_t first = scale(rest, buckets), second;
    if (dynamic || buckets == 1) {
      second = scale(other, buckets);
    } else {
      second = scale(other, buckets - 1);
      if (second >= first) ++second;
    }
    const auto number = [&](int64_t b) {
      return dynamic ? b * shape.shards + static_cast<int64_t>(shard)
                     : static_cast<int64_t>(shard) * shape.buckets + b;
    };
    return {number(first), number(second)};
  }

  IdShape shape;
  IdPolicy policy;
  bool dynamic;
  int64_t buckets;  // of a shard, in use
  std::map<int64_t, Slot> slots;
  std::map<int64_t, int64_t> where;  // id -> slot
  std::set<int64_t> free;            // rows
  int64_t clock = 0, released = 0, epoch = 0, epoch_began = 0;
  bool crowded = false;  // a new id found no slot, and there must be one
  bool lost = false;     // the last newcomer, against the id that would have gone
  int64_t looked_up = 0, hits = 0, inserted = 0, evicted = 0, not_admitted = 0, overflowed = 0;
  std::vector<std::tuple<int64_t, std::pair<bool, int64_t>, int64_t>> changes;  // row, old, new
  std::map<int64_t, int64_t> counters, sightings;  // of the filter: by place, by shard

 private:
  std::vector<int64_t> slots_of(int64_t bucket) const {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 16; ++i) all.push_back(16 * bucket + i);
    return all;
  }

  int64_t empty(int64_t id) const {
    const auto [first, second] = buckets_of(id);
    std::vector<int64_t> best;
    for (int64_t bucket : {first, second}) {
      std::vector<int64_t> here;
      for (int64_t s : slots_of(bucket))
        if (slots.count(s) == 0) here.push_back(s);
      if (here.size() > best.size()) best = here;
    }
    return best.empty() ? -1 : best[0];
  }

  int64_t make_room(int64_t id) {
    const auto [first, second] = buckets_of(id);
    for (int64_t bucket : {first, second})
      for (int64_t s : slots_of(bucket)) {
        const Slot slot = slots.at(s);
        const auto [one, two] = buckets_of(slot.id);
        for (int64_t to : slots_of(one == bucket ? two : one))
          if (slots.count(to) == 0) {
            slots[to] = slot;
            where[slot.id] = to;
            slots.erase(s);
            return s;
          }
      }
    return -1;
  }

  int64_t victim(int64_t id) const {
    const auto [first, second] = buckets_of(id);
    std::set<std::pair<double, int64_t>> may;
    for (int64_t bucket : {first, second})
      for (int64_t s : slots_of(bucket)) {
        const auto found = slots.find(s);
        if (found == slots.end() || pinned(found->second)) continue;
        if (policy.kind == PolicyKind::kTtl && clock - found->second.score < policy.ttl) continue;
        may.insert({found->second.score, s});
      }
    return may.empty() ? -1 : may.begin()->second;
  }

  bool grow() {
    if (buckets == shape.buckets) return false;
    const std::map<int64_t, Slot> old = slots;
    std::map<int64_t, bool> in_first;
    for (const auto& [s, slot] : old) in_first[s] = buckets_of(slot.id).first == s / 16;
    buckets *= 2;
    slots.clear();
    for (const auto& [s, slot] : old) {
      const auto [first, second] = buckets_of(slot.id);
      for (int64_t to : slots_of(in_first[s] ? first : second))
        if (slots.count(to) == 0) {
          slots[to] = slot;
          where[slot.id] = to;
          break;
        }
    }
    return true;
  }

  int64_t shard_of(int64_t id) const {
    return shape.shards == 1 ? 0
                             : static_cast<int64_t>(splitmix(id) / (UINT64_MAX / shape.shards + 1));
  }

  int64_t count(const Seen& s) {
    const uint64_t x = splitmix(s.id) * 0xd6e8feb86659fd93u;
    const int64_t shard = shard_of(s.id);
    const int64_t line = static_cast<int64_t>((x >> 32) * shape.filter_lines / 4294967296u);
    sightings[shard] += std::min<int64_t>(s.count, 255);
    std::vector<int64_t> places;
    int64_t least = 255;
    for (int q = 0; q < 4; ++q) {
      const int64_t within = 16 * q + static_cast<int64_t>((x >> (16 + 4 * q)) % 16);
      places.push_back((shard * shape.filter_lines + line) * 64 + within);
      least = std::min(least, counters[places.back()]);
    }
    const int64_t now = std::min<int64_t>(least + s.count, 255);
    for (int64_t place : places) counters[place] = std::max(counters[place], now);
    return now;
  }

  void age_filter() {
    for (auto& [shard, seen] : sightings)
      for (; seen >= 32 * shape.filter_lines; seen /= 2)
        for (auto& [place, c] : counters)
          if (place / (64 * shape.filter_lines) == shard) c /= 2;
  }
};

}  // namespace merlin
