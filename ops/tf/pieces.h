// The ids of several features, cut into pieces for threads.
#pragma once

#include <algorithm>
#include <vector>

#include "tf/thread_pool.h"

namespace merlin {

// A thread's waking costs more than looking at this many ids.
constexpr int64_t kIdsAPiece = 1 << 17;

// Runs work(feature, begin, end) over all ids of all features.
template <class Work>
void ForPieces(tensorflow::OpKernelContext* ctx, const tensorflow::OpInputList& ids,
               const Work& work) {
  struct Piece {
    int feature;
    int64_t begin, end;
  };
  // A piece is ranges of several features, together at most kIdsAPiece ids.
  std::vector<std::vector<Piece>> pieces(1);
  int64_t room = kIdsAPiece;
  for (int f = 0; f < ids.size(); ++f) {
    for (int64_t i = 0, n = ids[f].NumElements(); i < n;) {
      const int64_t end = std::min(n, i + room);
      pieces.back().push_back({f, i, end});
      room -= end - i;
      i = end;
      if (room > 0) continue;
      pieces.emplace_back();
      room = kIdsAPiece;
    }
  }
  ThreadPool(ctx).run(pieces.size(), [&](int64_t p) {
    for (const Piece& piece : pieces[p]) work(piece.feature, piece.begin, piece.end);
  });
}

}  // namespace merlin
