// A table from ids to rows in bounded memory: which ids own a row, and who goes when another comes.
//
// Slots stand in buckets of kBucket. An id may be in one of two buckets, both in its virtual shard.
// A byte a slot (the tag, a piece of the id's hash; 0: empty) says where to look: a query reads
// 2 x 16 tags, and then mostly one key. Where the table has no `rows`, the slot is the row
// (managed collision); otherwise rows are handed out lowest first, and the part of the index that
// is in use grows by doubling (dynamic), so that memory follows use and no vector moves.
//
// The table owns nothing: it is a view of arrays that are zero when the table is empty, so that
// lazily mapped memory needs no filling. All that a later call depends on is in these arrays.
//
// Results are a function of the state and the set of (id, count, score) of a call: neither threads,
// nor the order of ids, nor how equal ids were split into entries changes a bit of it. Missing ids
// are handled in ascending order of their hash, which begins with their shard's number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel.h"
#include "types.h"

namespace merlin {

// Chosen by measurement; see docs/ids.md.
constexpr int64_t kBucket = 16;
// One cache line of one-byte counters.
constexpr int64_t kFilterLine = 64;
constexpr int64_t kMaxShards = 256;
constexpr int64_t kMaxAdmitAfter = 255;
constexpr int64_t kMaxOpenRoutes = 32767;
// An index grows beyond three fifths of its slots. Where three quarters are used, both buckets of
// some three ids of a million are full, while rows are free; here a bucket holds 9.6 on average,
// and with two choices hardly one in billions gets to 16.
constexpr int64_t kFullAt = 3, kFullOf = 5;
// EpochLRU and EpochLFU: the epoch is the score's high 12 bits.
constexpr int kEpochShift = 20;
constexpr int64_t kMaxEpoch = (int64_t{1} << (32 - kEpochShift)) - 1;
// LFU with a half-life: scores are log2 of the count in units of 2^-12.
constexpr int kLogShift = 12;

// Places in IdTable::meters. Counts of lookups are sums of the given counts.
enum Meter : int64_t {
  kClock,        // training assigns made
  kReleased,     // the number of the last assign whose rows may go
  kEpoch,        // set by set_epoch
  kEpochBegan,   // the clock when it was set
  kUsed,         // used slots
  kActive,       // dynamic: buckets of a shard in use; 0 stands for IdShape::initial
  kFreeFrom,     // dynamic: no row below 64 times this is free
  kHighest,      // dynamic: rows that were ever handed out
  kLookedUp,     // lookups in training, padding left out
  kHits,         // of them, found
  kInserted,     // ids that got a row
  kEvicted,      // ids that lost it to another
  kNotAdmitted,  // lookups without a row: the policy didn't admit the id (yet)
  kOverflowed,   // lookups without a row: all rows that the id could have are pinned
  kFill,         // [shards]: sightings counted by the shard's filter; halved with it
};

// Sizes of the arrays, a function of the constructor's arguments only.
struct IdShape {
  int64_t slots;         // S = shards * buckets * kBucket
  int64_t shards;        // V, a power of two
  int64_t buckets;       // of a shard
  int64_t initial;       // dynamic: buckets of a shard in use when the table is new; else `buckets`
  int64_t filter_lines;  // of a shard; 0: no filter
  int64_t max_rows;      // dynamic: R; else the slots

  MERLIN_ALWAYS_INLINE int64_t filter_size() const { return shards * filter_lines * kFilterLine; }
  MERLIN_ALWAYS_INLINE int64_t meters() const { return kFill + shards; }
  MERLIN_ALWAYS_INLINE int64_t taken_words() const { return (max_rows + 63) / 64; }
};

// capacity in [1, 2^30]; the table has `slots` rows, which is the capacity rounded up to whole
// buckets a shard (by less than 1/64 where it is over 2,048). admit_after > 1 asks for a filter.
IdShape managed_shape(int64_t capacity, int64_t admit_after);

// 1 <= initial <= max_rows <= 2^29. The index has room for more ids than rows.
IdShape dynamic_shape(int64_t initial, int64_t max_rows);

// The arrays. An empty slot is zero in all of them.
struct IdTable {
  uint8_t* tags;     // [S], 0: empty
  int64_t* keys;     // [S]
  uint32_t* scores;  // [S]
  uint16_t* pins;    // [S], pin_number(clock) of the last training assign that returned it; 0: none
  int32_t* rows;     // [S], dynamic only; null: the slot is the row
  int64_t* taken;    // [(R + 63) / 64], dynamic only: a bit for each row that is handed out
  uint8_t* filter;   // [V * filter_lines * 64], or null
  int64_t* meters;   // [kFill + V]
  IdShape shape;

  MERLIN_ALWAYS_INLINE bool dynamic() const { return rows != nullptr; }
};

enum class PolicyKind : int32_t {
  kLru,         // score: the clock
  kLfu,         // score: the count, which stays at 2^32 - 1 once there
  kDecayedLfu,  // score: (log2 of the count halved each half_life + clock / half_life) * 2^12
  kEpochLru,    // score: the epoch, then assigns since it began
  kEpochLfu,    // score: the epoch last seen in, then the count up to 2^20 - 1
  kTtl,     // score: the clock; evicts only what `ttl` assigns, with the current one, didn't see;
            // else a newcomer isn't admitted
  kCustom,  // score: as given with the ids
};

struct IdPolicy {
  PolicyKind kind = PolicyKind::kLru;
  int64_t half_life = 1;         // kDecayedLfu: in assigns, >= 1
  int64_t ttl = 1;               // kTtl: in assigns, >= 1
  int64_t admit_after = 1;       // sightings, [1, kMaxAdmitAfter]; above 1 the table has a filter
  double admit_probability = 1;  // (0, 1], of each assign that sees the id; hash of (id, clock)
  bool contest = false;          // newcomers must win against the id that would go: Step::wins
  int64_t open_routes = 16;      // [0, kMaxOpenRoutes]
  int64_t oov_rows = 0;          // without a row of its own: row capacity + hash % oov_rows, or -1
  bool evict = true;             // dynamic: false asks for an error when all rows are taken
};

// The ids of one feature, and where their rows go.
struct IdList {
  const int64_t* ids;     // [N], any number
  const int64_t* counts;  // [N], each >= 1, or null: 1 each
  const int64_t* scores;  // [N], each in [0, 2^32): kCustom only, which needs them; else null
  int64_t size;           // N
  bool padded;            // skip ids that are `padding`: row -1
  int64_t padding;
  int64_t* rows;  // [N], out
};

// What changed in the map, in the order of the ids' hashes: row i was old_ids[i]'s when had_old[i],
// and is now new_ids[i]'s.
struct IdChanges {
  std::vector<int64_t> rows, old_ids, new_ids;
  std::vector<uint8_t> had_old;

  void reserve(size_t size) {
    for (auto* part : {&rows, &old_ids, &new_ids}) part->reserve(size);
    had_old.reserve(size);
  }
};

// Why a call did nothing at all; kCrowded: nothing but to tick and to touch what it found.
struct IdTrouble {
  enum Kind { kNone, kCount, kScore, kFull, kCrowded } kind = kNone;
  int64_t list = -1, position = -1;  // kCount, kScore: whose
  int64_t missing = 0;               // kFull: distinct ids that have no row; kCrowded: one of them
  int64_t free = 0;                  // and rows that are free
};

// The rows of ids; writes nothing but IdList::rows, and looks neither at counts nor at scores.
// Several may run at once.
void find(const IdTable& table, const IdPolicy& policy, const IdList* lists, int64_t count,
          const Parallel& parallel);

// One training step's ids, of all features that share the table: the clock ticks once. Ids that are
// found are touched, and can't lose their row to the others; missing ones are admitted or not, and
// evict by the policy. kFull, of a dynamic table that doesn't evict: too few free rows. kCrowded,
// of the same: rows are free, but both buckets of a new id are full, the index can't grow, and no
// id in them can move to its other bucket. Ids must have been made up for that. No new id has a row
// then.
IdTrouble assign(const IdTable& table, const IdPolicy& policy, const IdList* lists, int64_t count,
                 const Parallel& parallel, IdChanges* changes);

// All assigns so far are finished: the rows that they returned may go.
void release(const IdTable& table);

// epoch in [0, kMaxEpoch].
void set_epoch(const IdTable& table, int64_t epoch);

// Gives each id (distinct, [N]) a row: its own, a free one, or the unpinned one of the lowest
// score; no admission, no tick, no pin, nothing counted but what is inserted and evicted. scores
// [N] as stored, or null: that of an id first seen now (kCustom: 0). rows [N] out, as they are at
// the end: -1 for an id that found all its rows pinned, or that another of this call evicted.
// kFull: as assign.
IdTrouble upsert(const IdTable& table, const IdPolicy& policy, const int64_t* ids,
                 const int64_t* scores, int64_t count, int64_t* rows, IdChanges* changes);

// Forgets ids (pinned or not): rows [N] out, those that they had; -1 where an id had none.
void erase(const IdTable& table, const int64_t* ids, int64_t count, int64_t* rows);

// Forgets the unpinned ids whose score is less than `lowest`, then those of the lowest scores (of
// equal ones, the lower slot) until at most `keep` are left or pinned ones alone. In the order of
// slots.
struct IdEntries {
  std::vector<int64_t> slots, ids, rows, scores;
};
IdEntries restrict_entries(const IdTable& table, const IdPolicy& policy, int64_t lowest,
                           int64_t keep);

// The score of an id that was last seen at clock `clock` (at most the present one) with `count`
// sightings in all: what restrict_entries compares with. kCustom: count itself.
int64_t score_of(const IdTable& table, const IdPolicy& policy, int64_t clock, int64_t count);

// Used slots in order, of one shard or (-1) of all.
IdEntries entries(const IdTable& table, int64_t shard);

// Puts entries back where entries() found them: the same run goes on. The table is empty, of the
// same shape, and its meters (kActive of a dynamic one above all) are as they were, kUsed included.
// False where a slot isn't one that the id may have, or is taken: nothing is written then.
bool place(const IdTable& table, const IdEntries& entries);

// The id's virtual shard.
int64_t shard_of(const IdShape& shape, int64_t id);

}  // namespace merlin
