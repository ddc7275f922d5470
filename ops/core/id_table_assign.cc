// One training step: touch what is found, then admit, then insert.
#include <algorithm>
#include <memory>
#include <utility>

#include "counting_filter.h"
#include "id_insert.h"
#include "id_order.h"
#include "id_probe.h"

namespace merlin {
namespace {

// Below this, dividing the ids among threads costs more than it brings.
constexpr int64_t kIdsForThreads = 1 << 16;

struct Entry {
  int64_t id;
  uint64_t hash;
  int64_t* row;
  uint32_t count, given;

  MERLIN_ALWAYS_INLINE void set(int64_t id_, uint64_t hash_, int64_t* row_, uint32_t count_,
                                uint32_t given_) {
    id = id_;
    hash = hash_;
    row = row_;
    count = count_;
    given = given_;
  }
};

// The work on the ids of a range of shards.
class Group {
 public:
  Group(const IdTable& table, const Step& step, const IdSpace& space)
      : table_(table), step_(step), space_(space) {
    switch (step.policy.kind) {
      case PolicyKind::kLfu:
      case PolicyKind::kEpochLfu:
        touch_ = kAdd;
        break;
      case PolicyKind::kDecayedLfu:
      case PolicyKind::kCustom:
        touch_ = kGather;
        break;
      default:
        touch_ = kLatest;
    }
  }

  void see(const Entry* entries, int n) {
    if (touch_ == kLatest)
      see_as<kLatest>(entries, n);
    else if (touch_ == kAdd)
      see_as<kAdd>(entries, n);
    else
      see_as<kGather>(entries, n);
  }

  // Afterwards scores are scores again.
  void settle() {
    for (const Sum& s : sums_)
      table_.scores[s.slot] = step_.next(s.score, s.count, s.given, s.hash);
    sums_.clear();
  }

  // The distinct missing ids that are admitted, in the order of their hashes.
  void admit() {
    order_.reserve(missing_.size());
    for (size_t i = 0; i < missing_.size(); ++i)
      order_.emplace_back(missing_[i].hash, static_cast<uint32_t>(i));
    sort(&order_);
    const CountingFilter filter = {table_.filter, table_.shape.filter_lines};
    const bool filtered = step_.policy.admit_after > 1;
    for (uint32_t i = 0; i < order_.size();) {
      if (i + kAhead < order_.size()) {
        const auto [ahead, place] = order_[i + kAhead];
        __builtin_prefetch(&missing_[place]);
        if (filtered) __builtin_prefetch(filter.place(ahead, space_.shard(ahead)).line, 1);
      }
      Newcomer n = {order_[i].first, i, i, 0, 0, 0};
      uint64_t count = 0;
      for (; n.end < order_.size() && order_[n.end].first == n.hash; ++n.end) {
        const Entry& e = missing_[order_[n.end].second];
        count += e.count;
        n.given = std::max(n.given, e.given);
      }
      i = n.end;
      n.times = n.seen = saturated(count);
      if (admits(table_, step_, n.hash, space_.shard(n.hash), &n.seen))
        newcomers_.push_back(n);
      else
        refuse(n, &tally_.not_admitted);
    }
    if (!filtered || order_.empty()) return;
    const int64_t last = space_.shard(order_.back().first);
    for (int64_t shard = space_.shard(order_.front().first); shard <= last; ++shard)
      filter.age(shard, &table_.meters[kFill + shard]);
  }

  int64_t admitted() const { return static_cast<int64_t>(newcomers_.size()); }

  // Slots first, for a block of ids, then their keys. An id of the block can't lose its slot to
  // another, since it is pinned. A dynamic table's index may grow, for which it needs all keys.
  void insert(IdSpace* space, IdChanges* changes) {
    changes->reserve(newcomers_.size());
    const size_t block = table_.dynamic() ? 1 : kIdsABlock;
    Given given[kIdsABlock];
    for (size_t i = 0; i < newcomers_.size(); i += block) {
      const size_t n = std::min(block, newcomers_.size() - i);
      for (size_t j = i; j < i + n; ++j) prefetch(space->place(newcomers_[j].hash));
      for (size_t j = 0; j < n; ++j) {
        const Newcomer& c = newcomers_[i + j];
        const uint32_t score = step_.first(c.seen, c.given, c.hash);
        given[j] = give_slot(table_, step_, {c.hash, score, c.times, c.seen, step_.pin, false},
                             space, &tally_);
        if (given[j].slot != kNoSlot) __builtin_prefetch(table_.keys + given[j].slot, 1);
      }
      for (size_t j = 0; j < n; ++j) {
        const Newcomer& c = newcomers_[i + j];
        if (given[j].slot != kNoSlot) {
          name_slot(table_, given[j], missing_[order_[c.begin].second].id, changes);
          give(c, row_of(table_, given[j].slot));
        } else {
          const bool waits = given[j].lost || step_.policy.kind == PolicyKind::kTtl;
          refuse(c, waits ? &tally_.not_admitted : &tally_.overflowed);
          if (!waits) crowded_ = missing_[order_[c.begin].second].id;
        }
      }
    }
  }

  const Tally& tally() const { return tally_; }

  // The last id that overflowed.
  int64_t crowded() const { return crowded_; }

 private:
  enum Touch { kLatest, kAdd, kGather };
  static constexpr uint32_t kAhead = 24;

  // A slot that was found, while its place in `scores` holds this one's number.
  struct Sum {
    int64_t slot;
    uint64_t hash;
    uint32_t score, count, given;
  };

  struct Newcomer {
    uint64_t hash;
    uint32_t begin, end;  // in the order
    uint32_t times, seen, given;
  };

  template <Touch touch>
  void see_as(const Entry* entries, int n) {
    // Copies: nothing that is written can change them.
    const IdTable table = table_;
    const Step step = step_;
    const IdSpace space = space_;
    int64_t looked_up = 0, hits = 0;
    Probe found;
    probe<true>(table, space, n, [=](int i) { return entries[i].hash; }, &found);
    for (int i = 0; i < n; ++i) {
      const Entry& e = entries[i];
      looked_up += e.count;
      const int64_t slot = slot_among(table, found.place(i), found.bits[i], e.id);
      if (slot == kNoSlot) {
        missing_.push_back(e);
        continue;
      }
      hits += e.count;
      *e.row = row_of(table, slot);
      table.pins[slot] = step.pin;
      uint32_t& score = table.scores[slot];
      if (touch == kLatest)
        score = step.latest;
      else if (touch == kAdd)
        score = step.next(score, e.count, 0, 0);
      else
        gather(slot, e);
    }
    tally_.looked_up += looked_up;
    tally_.hits += hits;
  }

  void gather(int64_t slot, const Entry& e) {
    uint32_t& score = table_.scores[slot];
    if (score < sums_.size() && sums_[score].slot == slot) {
      Sum& s = sums_[score];
      s.count = saturated(uint64_t{s.count} + e.count);
      s.given = std::max(s.given, e.given);
    } else {
      sums_.push_back({slot, e.hash, score, e.count, e.given});
      score = static_cast<uint32_t>(sums_.size() - 1);
    }
  }

  void prefetch(const IdPlace& place) const {
    for (const int64_t slot : {place.first, place.second}) {
      __builtin_prefetch(table_.tags + slot, 1);
      __builtin_prefetch(table_.scores + slot, 1);
      __builtin_prefetch(table_.pins + slot, 1);
    }
  }

  void give(const Newcomer& n, int64_t row) {
    for (uint32_t i = n.begin; i < n.end; ++i) *missing_[order_[i].second].row = row;
  }

  void refuse(const Newcomer& n, int64_t* meter) {
    for (uint32_t i = n.begin; i < n.end; ++i) *meter += missing_[order_[i].second].count;
    give(n, row_without(table_, step_.policy, n.hash));
  }

  const IdTable& table_;
  const Step& step_;
  const IdSpace space_;  // while nothing grows
  Touch touch_;
  std::vector<Sum> sums_;
  std::vector<Entry> missing_;
  Order order_;
  std::vector<Newcomer> newcomers_;
  Tally tally_;
  int64_t crowded_ = 0;
};

// Calls visit(id, hash, row, count, given) for places [low, high) of the lists laid end to end;
// padding gets its row. Fields, not an Entry: that would go through memory once more.
template <class Visit>
void visit(const IdList* lists, int64_t count, int64_t low, int64_t high, const Visit& visit) {
  for (int64_t f = 0, first = 0; f < count; first += lists[f].size, ++f) {
    const IdList list = lists[f];
    const int64_t end = std::min(list.size, high - first);
    for (int64_t i = std::max(low - first, int64_t{0}); i < end; ++i) {
      const int64_t id = list.ids[i];
      if (skipped(list, id))
        list.rows[i] = kNoLine;
      else
        visit(id, hash_of(id), list.rows + i,
              list.counts ? saturated(static_cast<uint64_t>(list.counts[i])) : 1,
              list.scores ? static_cast<uint32_t>(list.scores[i]) : 0);
    }
  }
}

IdTrouble check(const IdPolicy& policy, const IdList* lists, int64_t count) {
  for (int64_t f = 0; f < count; ++f) {
    const IdList& list = lists[f];
    if (list.counts)
      for (int64_t i = 0; i < list.size; ++i)
        if (list.counts[i] < 1 && !skipped(list, list.ids[i])) return {IdTrouble::kCount, f, i};
    if (policy.kind == PolicyKind::kCustom && !list.scores && list.size > 0)
      return {IdTrouble::kScore, f, -1};
    if (list.scores)
      for (int64_t i = 0; i < list.size; ++i)
        if ((list.scores[i] < 0 || list.scores[i] > UINT32_MAX) && !skipped(list, list.ids[i]))
          return {IdTrouble::kScore, f, i};
  }
  return {};
}

// No id that came in this call has a row; what is said of one that could have none.
IdTrouble undo(const IdTable& table, const std::vector<std::unique_ptr<Group>>& groups,
               const std::vector<IdChanges>& changed) {
  IdTrouble trouble{IdTrouble::kCrowded};
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<int64_t> rows(changed[g].new_ids.size());
    erase(table, changed[g].new_ids.data(), static_cast<int64_t>(rows.size()), rows.data());
    table.meters[kInserted] -= static_cast<int64_t>(rows.size());
    if (groups[g]->tally().overflowed > 0) trouble.missing = groups[g]->crowded();
  }
  return trouble;
}

// What a dynamic table that must not evict lacks, found before anything is written.
IdTrouble check_room(const IdTable& table, const IdList* lists, int64_t count, int64_t total) {
  const int64_t free = table.shape.max_rows - table.meters[kUsed];
  if (total <= free) return {};
  const IdSpace space = IdSpace::of(table);
  std::vector<uint64_t> missing;
  for (int64_t f = 0; f < count; ++f)
    for (int64_t i = 0; i < lists[f].size; ++i) {
      const int64_t id = lists[f].ids[i];
      const uint64_t hash = hash_of(id);
      if (!skipped(lists[f], id) && find_slot(table, space.place(hash), id) == kNoSlot)
        missing.push_back(hash);
    }
  std::sort(missing.begin(), missing.end());
  const int64_t distinct = std::unique(missing.begin(), missing.end()) - missing.begin();
  if (distinct <= free) return {};
  return {IdTrouble::kFull, -1, -1, distinct, free};
}

}  // namespace

IdTrouble assign(const IdTable& table, const IdPolicy& policy, const IdList* lists, int64_t count,
                 const Parallel& parallel, IdChanges* changes) {
  int64_t total = 0;
  for (int64_t f = 0; f < count; ++f) total += lists[f].size;
  IdTrouble trouble = check(policy, lists, count);
  if (trouble.kind == IdTrouble::kNone && table.dynamic() && !policy.evict)
    trouble = check_room(table, lists, count, total);
  if (trouble.kind != IdTrouble::kNone) return trouble;

  ++table.meters[kClock];
  const Step step = Step::of(table.meters, policy);
  IdSpace space = IdSpace::of(table);
  const int64_t threads = total < kIdsForThreads ? 1 : parallel.threads();
  const int64_t size = std::min<int64_t>(threads, table.shape.shards);
  std::vector<std::unique_ptr<Group>> groups;
  for (int64_t g = 0; g < size; ++g) groups.push_back(std::make_unique<Group>(table, step, space));
  std::vector<IdChanges> changed(size);

  const auto finish = [&](int64_t g) {
    groups[g]->settle();
    groups[g]->admit();
    IdSpace fixed = space;
    if (!table.dynamic()) groups[g]->insert(&fixed, &changed[g]);
  };

  if (size == 1) {
    Entry block[kIdsABlock];
    int n = 0;
    visit(lists, count, 0, total, [&](auto... fields) {
      block[n++].set(fields...);
      if (n < kIdsABlock) return;
      groups[0]->see(block, n);
      n = 0;
    });
    groups[0]->see(block, n);
    finish(0);
  } else {
    // Each thread's share of the ids is put in order of groups, then each group takes its own.
    const auto group_of = [&](uint64_t hash) {
      return space.shard(hash) * size / table.shape.shards;
    };
    const auto share = [&](int64_t t) { return total * t / threads; };
    std::unique_ptr<Entry[]> entries(new Entry[total]);
    std::vector<int64_t> next(threads * size + 1);
    parallel.run(threads, [&](int64_t t) {
      std::vector<int64_t> sizes(size);
      visit(lists, count, share(t), share(t + 1),
            [&](int64_t, uint64_t hash, int64_t*, uint32_t, uint32_t) { ++sizes[group_of(hash)]; });
      for (int64_t g = 0; g < size; ++g) next[g * threads + t + 1] = sizes[g];
    });
    for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
    const std::vector<int64_t> first = next;
    parallel.run(threads, [&](int64_t t) {
      std::vector<int64_t> to(size);
      for (int64_t g = 0; g < size; ++g) to[g] = first[g * threads + t];
      visit(lists, count, share(t), share(t + 1),
            [&](int64_t id, uint64_t hash, int64_t* row, uint32_t times, uint32_t given) {
              entries[to[group_of(hash)]++].set(id, hash, row, times, given);
            });
    });
    parallel.run(size, [&](int64_t g) {
      const int64_t end = first[(g + 1) * threads];
      for (int64_t i = first[g * threads]; i < end; i += kIdsABlock)
        groups[g]->see(&entries[i], static_cast<int>(std::min<int64_t>(kIdsABlock, end - i)));
      finish(g);
    });
  }

  if (table.dynamic()) {
    int64_t used = table.meters[kUsed];
    for (const auto& group : groups) used += group->admitted();
    grow_for(table, std::min(used, table.shape.max_rows), &space);
    int64_t crowded = 0;
    for (int64_t g = 0; g < size; ++g) {
      groups[g]->insert(&space, &changed[g]);
      groups[g]->tally().write(table.meters);
      crowded += groups[g]->tally().overflowed;
    }
    if (crowded > 0 && !policy.evict) return undo(table, groups, changed);
  } else {
    for (const auto& group : groups) group->tally().write(table.meters);
  }
  for (const IdChanges& c : changed) append(changes, c);
  return {};
}

void release(const IdTable& table) { table.meters[kReleased] = table.meters[kClock]; }

void set_epoch(const IdTable& table, int64_t epoch) {
  table.meters[kEpoch] = epoch;
  table.meters[kEpochBegan] = table.meters[kClock];
}

}  // namespace merlin
