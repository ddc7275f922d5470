#include <algorithm>

#include "id_probe.h"

namespace merlin {
namespace {

// A thread's waking costs more than looking up this many ids.
constexpr int64_t kIdsAPiece = 1 << 14;

// Copies, all of them: nothing that is written can change them.
void find_piece(const IdTable table, const IdSpace space, const IdPolicy policy, const IdList list,
                int64_t begin, int64_t end) {
  uint64_t hashes[kIdsABlock];
  Probe found;
  for (int64_t at = begin; at < end; at += kIdsABlock) {
    const int n = static_cast<int>(std::min<int64_t>(kIdsABlock, end - at));
    const int64_t* ids = list.ids + at;
    int64_t* rows = list.rows + at;
    for (int i = 0; i < n; ++i) hashes[i] = hash_of(ids[i]);
    probe<false>(table, space, n, [&](int i) { return hashes[i]; }, &found);
    for (int i = 0; i < n; ++i) {
      const int64_t slot = slot_among(table, found.place(i), found.bits[i], ids[i]);
      rows[i] = slot != kNoSlot ? row_of(table, slot) : row_without(table, policy, hashes[i]);
    }
    if (list.padded)
      for (int i = 0; i < n; ++i) rows[i] = ids[i] == list.padding ? kNoLine : rows[i];
  }
}

}  // namespace

void find(const IdTable& table, const IdPolicy& policy, const IdList* lists, int64_t count,
          const Parallel& parallel) {
  const IdSpace space = IdSpace::of(table);
  std::vector<int64_t> first = {0};  // where each list's ids begin, laid end to end
  for (int64_t f = 0; f < count; ++f) first.push_back(first.back() + lists[f].size);
  const int64_t total = first.back();
  const int64_t pieces = std::clamp<int64_t>(total / kIdsAPiece, 1, 4 * parallel.threads());
  parallel.run(pieces, [&](int64_t p) {
    const int64_t low = total * p / pieces, high = total * (p + 1) / pieces;
    for (int64_t f = 0; f < count; ++f) {
      const int64_t begin = std::max(low, first[f]) - first[f];
      const int64_t end = std::min(high, first[f + 1]) - first[f];
      if (begin < end) find_piece(table, space, policy, lists[f], begin, end);
    }
  });
}

}  // namespace merlin
