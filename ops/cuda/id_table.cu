// The CUDA twin of core/id_table: the same arrays, in device memory, and the same bits in them.
//
// Equal ids are brought together by a radix sort of hashes, which also is the order that missing
// ids are handled in. What is found is touched by a thread an id; then each shard handles its
// missing ids in a block of its own, one after the other, by the functions that the CPU runs. A
// dynamic table hands its rows out in order: one thread for all shards.
#include <cuda_runtime.h>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "core/counting_filter.h"
#include "core/id_insert.h"
#include "cuda/id_table.h"

namespace merlin {
namespace {

constexpr int kThreads = 256;

int blocks(int64_t n) { return static_cast<int>((n + kThreads - 1) / kThreads); }

__device__ int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ void add(int64_t* to, int64_t x) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(x));
}

// What kernels of a call share. U distinct ids, in the order of their hashes.
struct Shared {
  Step step;
  IdSpace space;
  int64_t distinct;  // U
  int64_t missing;
};

struct Work {
  Shared* shared;
  uint64_t *hashes, *sorted;   // [N]
  uint32_t *places, *order;    // [N], of the ids as they came
  uint32_t *begins, *numbers;  // [N]: does a distinct id begin here; how many did so far
  uint32_t* first;             // [U], its first place in the order
  uint64_t* sums;              // [U]
  uint32_t* given;             // [U]
  uint32_t* seen;              // [U], of those that are admitted
  int64_t* slots;              // [U], kNoSlot: missing; kSkipped: padding
  int64_t* rows;               // [U]
  CudaChange* changes;         // [U]
  uint8_t* changed;            // [U]
  void* scratch;               // of CUB
  size_t scratch_size;
};

constexpr int64_t kSkipped = -2;

// Lays the arrays out from `base` (null: only counts); returns the bytes.
size_t lay_out(int64_t n, char* base, Work* w) {
  size_t at = 0;
  const auto take = [&](auto** to, int64_t count) {
    at = (at + 255) / 256 * 256;
    *to = reinterpret_cast<std::remove_reference_t<decltype(*to)>>(base + at);
    at += sizeof(**to) * static_cast<size_t>(count);
  };
  take(&w->shared, 1);
  take(&w->hashes, n);
  take(&w->sorted, n);
  take(&w->places, n);
  take(&w->order, n);
  take(&w->begins, n);
  take(&w->numbers, n);
  take(&w->first, n);
  take(&w->sums, n);
  take(&w->given, n);
  take(&w->seen, n);
  take(&w->slots, n);
  take(&w->rows, n);
  take(&w->changes, n);
  take(&w->changed, n);
  size_t sort = 0, scan = 0, select = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, sort, w->hashes, w->sorted, w->places, w->order,
                                  static_cast<int>(n));
  cub::DeviceScan::InclusiveSum(nullptr, scan, w->begins, w->numbers, static_cast<int>(n));
  cub::DeviceSelect::Flagged(nullptr, select, w->changes, w->changed, w->changes, w->numbers,
                             static_cast<int>(n));
  w->scratch_size = std::max(sort, std::max(scan, select));
  char* scratch;
  take(&scratch, static_cast<int64_t>(w->scratch_size));
  w->scratch = scratch;
  return at;
}

__global__ void find_rows(IdTable table, IdPolicy policy, IdList list) {
  const int64_t i = thread_number();
  if (i >= list.size) return;
  const int64_t id = list.ids[i];
  const uint64_t hash = hash_of(id);
  const int64_t slot = find_slot(table, IdSpace::of(table).place(hash), id);
  list.rows[i] = list.padded && id == list.padding ? kNoLine
                 : slot != kNoSlot                 ? row_of(table, slot)
                                                   : row_without(table, policy, hash);
}

__global__ void hash_ids(IdList list, IdPolicy policy, Work w, IdTrouble* trouble) {
  const int64_t i = thread_number();
  if (i == 0) w.shared->missing = 0;
  if (i >= list.size) return;
  w.hashes[i] = hash_of(list.ids[i]);
  w.places[i] = static_cast<uint32_t>(i);
  w.sums[i] = 0;
  w.given[i] = 0;
  w.changed[i] = 0;
  if (list.padded && list.ids[i] == list.padding) return;
  const bool bad_count = list.counts && list.counts[i] < 1;
  const bool bad_score = list.scores && (list.scores[i] < 0 || list.scores[i] > UINT32_MAX);
  if (!bad_count && !bad_score) return;
  // Any of the bad ones is named.
  trouble->position = i;
  trouble->list = 0;
  trouble->kind = bad_count ? IdTrouble::kCount : IdTrouble::kScore;
}

__global__ void mark_begins(IdList list, Work w) {
  const int64_t i = thread_number();
  if (i < list.size) w.begins[i] = i == 0 || w.sorted[i] != w.sorted[i - 1];
}

__global__ void sum_counts(IdList list, Work w) {
  const int64_t i = thread_number();
  if (i >= list.size) return;
  const uint32_t u = w.numbers[i] - 1, place = w.order[i];
  if (w.begins[i]) w.first[u] = static_cast<uint32_t>(i);
  if (i == list.size - 1) w.shared->distinct = w.numbers[i];
  atomicAdd(reinterpret_cast<unsigned long long*>(&w.sums[u]),
            list.counts ? saturated(static_cast<uint64_t>(list.counts[place])) : 1u);
  if (list.scores) atomicMax(&w.given[u], static_cast<uint32_t>(list.scores[place]));
}

__global__ void find_distinct(IdTable table, IdList list, Work w) {
  const int64_t u = thread_number();
  if (u >= w.shared->distinct) return;
  const int64_t id = list.ids[w.order[w.first[u]]];
  if (list.padded && id == list.padding) {
    w.slots[u] = kSkipped;
    w.rows[u] = kNoLine;
    return;
  }
  w.slots[u] = find_slot(table, IdSpace::of(table).place(hash_of(id)), id);
  if (w.slots[u] == kNoSlot) add(&w.shared->missing, 1);
}

__global__ void begin_step(IdTable table, IdPolicy policy, Work w, IdTrouble* trouble) {
  const int64_t free = table.shape.max_rows - table.meters[kUsed];
  if (trouble->kind == IdTrouble::kNone && table.dynamic() && !policy.evict &&
      w.shared->missing > free) {
    trouble->kind = IdTrouble::kFull;
    trouble->missing = w.shared->missing;
    trouble->free = free;
  }
  if (trouble->kind != IdTrouble::kNone) return;
  ++table.meters[kClock];
  w.shared->step = Step::of(table.meters, policy);
  w.shared->space = IdSpace::of(table);
}

__global__ void touch_found(IdTable table, Work w, const IdTrouble* trouble) {
  const int64_t u = thread_number();
  if (trouble->kind != IdTrouble::kNone || u >= w.shared->distinct) return;
  const int64_t slot = w.slots[u];
  if (slot == kSkipped) return;
  const Step& step = w.shared->step;
  add(&table.meters[kLookedUp], static_cast<int64_t>(w.sums[u]));
  if (slot == kNoSlot) return;
  add(&table.meters[kHits], static_cast<int64_t>(w.sums[u]));
  w.rows[u] = row_of(table, slot);
  table.pins[slot] = step.pin;
  table.scores[slot] =
      step.next(table.scores[slot], saturated(w.sums[u]), w.given[u], hash_of(table.keys[slot]));
}

// A missing id that was admitted or not: w.slots[u] says so until it has its slot.
constexpr int64_t kAdmitted = -3;

__device__ void refuse(const IdTable& table, const Step& step, Work w, int64_t u, uint64_t hash,
                       int64_t* meter) {
  *meter += static_cast<int64_t>(w.sums[u]);
  w.rows[u] = row_without(table, step.policy, hash);
}

__device__ bool admit_one(const IdTable& table, const Step& step, const IdSpace& space, Work w,
                          int64_t u, Tally* tally) {
  const uint64_t hash = w.sorted[w.first[u]];
  uint32_t seen = saturated(w.sums[u]);
  const bool yes = admits(table, step, hash, space.shard(hash), &seen);
  if (!yes) refuse(table, step, w, u, hash, &tally->not_admitted);
  // The score is known now; `given` carries it.
  if (yes) {
    w.given[u] = step.first(seen, w.given[u], hash);
    w.seen[u] = seen;
  }
  return yes;
}

__device__ void insert_one(const IdTable& table, const IdList& list, const Step& step,
                           IdSpace* space, Work w, int64_t u, Tally* tally) {
  const uint64_t hash = w.sorted[w.first[u]];
  const Claim claim = {hash, w.given[u], saturated(w.sums[u]), w.seen[u], step.pin, false};
  const Given given = give_slot(table, step, claim, space, tally);
  if (given.slot == kNoSlot) {
    const bool waits = given.lost || step.policy.kind == PolicyKind::kTtl;
    refuse(table, step, w, u, hash, waits ? &tally->not_admitted : &tally->overflowed);
    return;
  }
  const int64_t id = list.ids[w.order[w.first[u]]];
  w.rows[u] = row_of(table, given.slot);
  w.changes[u] = {w.rows[u], given.evicts ? table.keys[given.slot] : 0, id, given.evicts};
  w.changed[u] = 1;
  table.keys[given.slot] = id;
}

__device__ void age(const IdTable& table, int64_t shard) {
  const CountingFilter filter = {table.filter, table.shape.filter_lines};
  if (table.filter && filter.lines > 0) filter.age(shard, &table.meters[kFill + shard]);
}

__device__ void write(const Tally& tally, int64_t* meters) {
  add(&meters[kInserted], tally.inserted);
  add(&meters[kEvicted], tally.evicted);
  add(&meters[kNotAdmitted], tally.not_admitted);
  add(&meters[kOverflowed], tally.overflowed);
  add(&meters[kUsed], tally.inserted - tally.evicted);
}

// The first distinct id of a shard, or of a later one.
__device__ int64_t begin_of(Work w, const IdSpace& space, int64_t shard) {
  int64_t low = 0, high = w.shared->distinct;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (space.shard(w.sorted[w.first[middle]]) < shard)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

__global__ void insert_managed(IdTable table, IdList list, Work w, const IdTrouble* trouble) {
  if (trouble->kind != IdTrouble::kNone || threadIdx.x != 0) return;
  const int64_t shard = blockIdx.x;
  const Step step = w.shared->step;
  IdSpace space = w.shared->space;
  Tally tally;
  const int64_t end = begin_of(w, space, shard + 1);
  for (int64_t u = begin_of(w, space, shard); u < end; ++u)
    if (w.slots[u] == kNoSlot && admit_one(table, step, space, w, u, &tally))
      insert_one(table, list, step, &space, w, u, &tally);
  age(table, shard);
  write(tally, table.meters);
}

__global__ void insert_dynamic(IdTable table, IdList list, Work w, IdTrouble* trouble) {
  if (trouble->kind != IdTrouble::kNone) return;
  const Step step = w.shared->step;
  IdSpace space = w.shared->space;
  Tally tally;
  int64_t used = table.meters[kUsed];
  for (int64_t u = 0; u < w.shared->distinct; ++u)
    if (w.slots[u] == kNoSlot && admit_one(table, step, space, w, u, &tally)) {
      w.slots[u] = kAdmitted;
      ++used;
    }
  for (int64_t shard = 0; shard < table.shape.shards; ++shard) age(table, shard);
  grow_for(table, smaller(used, table.shape.max_rows), &space);
  int64_t crowded = kSkipped;
  for (int64_t u = 0; u < w.shared->distinct; ++u)
    if (w.slots[u] == kAdmitted) {
      const int64_t overflowed = tally.overflowed;
      insert_one(table, list, step, &space, w, u, &tally);
      if (tally.overflowed > overflowed) crowded = u;
    }
  if (crowded != kSkipped && !step.policy.evict) {
    // No id that came in this call has a row.
    for (int64_t u = 0; u < w.shared->distinct; ++u) {
      if (!w.changed[u]) continue;
      const int64_t slot = find_slot(table, space.place(w.sorted[w.first[u]]), w.changes[u].new_id);
      free_row(table, table.rows[slot]);
      clear_slot(table, slot);
      w.changed[u] = 0;
    }
    tally.inserted = 0;
    trouble->kind = IdTrouble::kCrowded;
    trouble->missing = list.ids[w.order[w.first[crowded]]];
  }
  write(tally, table.meters);
}

__global__ void give_rows(IdList list, Work w, const IdTrouble* trouble) {
  const int64_t i = thread_number();
  if (trouble->kind == IdTrouble::kNone && i < list.size)
    list.rows[w.order[i]] = w.rows[w.numbers[i] - 1];
}

__global__ void tick(IdTable table, IdPolicy policy, const IdTrouble* trouble) {
  if (trouble->kind == IdTrouble::kNone) ++table.meters[kClock];
}

__global__ void release_all(IdTable table) { table.meters[kReleased] = table.meters[kClock]; }

}  // namespace
}  // namespace merlin

using namespace merlin;

extern "C" {

int64_t merlin_cuda_id_workspace(int64_t size) {
  Work w;
  return static_cast<int64_t>(lay_out(std::max<int64_t>(size, 1), nullptr, &w));
}

int merlin_cuda_id_find(const IdTable* table, const IdPolicy* policy, const IdList* list,
                        void* stream) {
  if (list->size > 0)
    find_rows<<<blocks(list->size), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        *table, *policy, *list);
  return static_cast<int>(cudaGetLastError());
}

int merlin_cuda_id_assign(const IdTable* table, const IdPolicy* policy, const IdList* list,
                          void* workspace, CudaChange* changes, uint32_t* changed,
                          IdTrouble* trouble, void* stream_) {
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_);
  const int64_t n = list->size;
  if (n > INT32_MAX || (policy->kind == PolicyKind::kCustom && n > 0 && !list->scores))
    return static_cast<int>(cudaErrorInvalidValue);
  const IdTrouble none;
  cudaMemcpyAsync(trouble, &none, sizeof none, cudaMemcpyHostToDevice, stream);
  if (n == 0) {
    tick<<<1, 1, 0, stream>>>(*table, *policy, trouble);
    cudaMemsetAsync(changed, 0, sizeof *changed, stream);
    return static_cast<int>(cudaGetLastError());
  }
  Work w;
  lay_out(n, static_cast<char*>(workspace), &w);
  const int b = blocks(n), size = static_cast<int>(n);
  hash_ids<<<b, kThreads, 0, stream>>>(*list, *policy, w, trouble);
  cub::DeviceRadixSort::SortPairs(w.scratch, w.scratch_size, w.hashes, w.sorted, w.places, w.order,
                                  size, 0, 64, stream);
  mark_begins<<<b, kThreads, 0, stream>>>(*list, w);
  cub::DeviceScan::InclusiveSum(w.scratch, w.scratch_size, w.begins, w.numbers, size, stream);
  sum_counts<<<b, kThreads, 0, stream>>>(*list, w);
  find_distinct<<<b, kThreads, 0, stream>>>(*table, *list, w);
  begin_step<<<1, 1, 0, stream>>>(*table, *policy, w, trouble);
  touch_found<<<b, kThreads, 0, stream>>>(*table, w, trouble);
  if (table->dynamic())
    insert_dynamic<<<1, 1, 0, stream>>>(*table, *list, w, trouble);
  else
    insert_managed<<<static_cast<int>(table->shape.shards), 32, 0, stream>>>(*table, *list, w,
                                                                             trouble);
  give_rows<<<b, kThreads, 0, stream>>>(*list, w, trouble);
  cub::DeviceSelect::Flagged(w.scratch, w.scratch_size, w.changes, w.changed, changes, changed,
                             size, stream);
  return static_cast<int>(cudaGetLastError());
}

int merlin_cuda_id_release(const IdTable* table, void* stream) {
  release_all<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(*table);
  return static_cast<int>(cudaGetLastError());
}

}  // extern "C"
