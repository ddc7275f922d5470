#include "drivers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

namespace merlin {
namespace {

struct Piece {
  int64_t task, begin, end;
};

// Cuts [0, size) of a task where cost(i), the cost of all before i, passes multiples of a share.
template <class Cost>
void cut(std::vector<Piece>* pieces, int64_t task, int64_t size, int64_t count, const Cost& cost) {
  const int64_t all = cost(size);
  for (int64_t begin = 0, n = 1; begin < size; ++n) {
    int64_t end = size;
    if (n < count) {
      int64_t low = begin + 1;
      while (low < end) {
        const int64_t middle = (low + end) / 2;
        if (cost(middle) < all * n / count)
          low = middle + 1;
        else
          end = middle;
      }
    }
    pieces->push_back({task, begin, end});
    begin = end;
  }
}

// Pieces of about 16 KiB of rows: long enough to hide a thread's waking, short enough to balance.
int64_t piece_count(int64_t numbers, int threads) {
  return std::clamp<int64_t>(numbers / 4096, 1, threads * 8);
}

// A lookup of fewer numbers than this, read and written, stays with the calling thread: it ends
// before another one has woken. Measured, for dims of 16 to 128.
constexpr int64_t kNumbersForThreads = 1 << 18;

// Output of more bytes than this is written past the caches, which it would leave again before
// anybody reads it. Measured with a consumer: below, finding it there is worth more.
constexpr int64_t kBytesPastCaches = 16 << 20;

int64_t numbers(const LookupTask& t) { return (t.pooling.lookups + t.pooling.bags) * t.table.dim; }

bool can_stream(const LookupTask& t) { return reinterpret_cast<uintptr_t>(t.pooled) % 64 == 0; }

template <class Run>
void run_pieces(const std::vector<Piece>& pieces, const Parallel& parallel, const Run& run) {
  parallel.run(static_cast<int64_t>(pieces.size()), [&](int64_t i) { run(pieces[i]); });
}

void cut_groups(std::vector<Piece>* pieces, int64_t task, const TableGradient& g, int threads) {
  // A distinct row costs about as much as two lookups of it: its memory is further away.
  const auto cost = [&](int64_t u) { return g.groups.offsets[u] + 2 * u; };
  const int64_t count = piece_count(cost(g.groups.size) * g.dim, threads);
  cut(pieces, task, g.groups.size, count, cost);
}

}  // namespace

int64_t bad_split(const Pooling& p) {
  if (!p.row_splits) return p.bags * p.hotness == p.lookups ? -1 : 0;
  if (p.row_splits[0] != 0) return 0;
  for (int64_t b = 0; b < p.bags; ++b)
    if (p.row_splits[b + 1] < p.row_splits[b] || p.row_splits[b + 1] > p.lookups) return b + 1;
  return p.row_splits[p.bags] == p.lookups ? -1 : p.bags;
}

int64_t bad_weight(const Pooling& p) {
  if (p.weights)
    for (int64_t i = 0; i < p.lookups; ++i)
      if (!std::isfinite(p.weights[i])) return i;
  return -1;
}

BadLine lookup(std::vector<LookupTask> tasks, const Parallel& given) {
  int64_t all = 0, bytes = 0;
  for (const LookupTask& t : tasks) {
    all += numbers(t);
    bytes += t.pooling.bags * t.table.dim * sizeof(float);
  }
  const Serial serial;
  const Parallel& parallel = all < kNumbersForThreads ? serial : given;
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Pooling& p = tasks[t].pooling;
    tasks[t].stream = bytes > kBytesPastCaches && can_stream(tasks[t]);
    cut(&pieces, t, p.bags, piece_count(numbers(tasks[t]), parallel.threads()),
        [&](int64_t bag) { return p.begin(bag) + bag; });
  }
  std::vector<int64_t> bad(pieces.size());
  parallel.run(pieces.size(), [&](int64_t i) {
    bad[i] = kernels().lookup(tasks[pieces[i].task], pieces[i].begin, pieces[i].end);
  });
  for (size_t i = 0; i < pieces.size(); ++i)
    if (bad[i] >= 0) return {pieces[i].task, bad[i]};
  return {};
}

void weight_gradients(const std::vector<WeightGradientTask>& tasks, const Parallel& parallel) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Pooling& p = tasks[t].pooling;
    cut(&pieces, t, p.bags, piece_count(p.lookups * tasks[t].table.dim, parallel.threads()),
        [&](int64_t bag) { return p.begin(bag) + bag; });
  }
  run_pieces(pieces, parallel, [&](const Piece& piece) {
    kernels().weight_gradient(tasks[piece.task], piece.begin, piece.end);
  });
}

GradientOf::GradientOf(const Pooling& p, const float* pooled_gradient, const int32_t* winners,
                       bool by_position)
    : view_{pooled_gradient, nullptr, nullptr, p.weights, winners} {
  if (p.combiner == Combiner::kMean || p.combiner == Combiner::kSqrtN) {
    scale_.reset(new float[p.bags]);
    for (int64_t bag = 0; bag < p.bags; ++bag) {
      float total = 0;
      for (int64_t i = p.begin(bag); i < p.begin(bag + 1); ++i) {
        if (p.lines[i] == kNoLine) continue;
        const float w = p.weights ? p.weights[i] : 1;
        total += p.combiner == Combiner::kMean ? w : w * w;
      }
      const float divisor = p.combiner == Combiner::kMean ? total : std::sqrt(total);
      scale_[bag] = divisor != 0 ? 1 / divisor : 0;
    }
    view_.scale = scale_.get();
  }
  if (by_position && (p.row_splits || p.hotness != 1)) {
    bag_of_.reset(new int32_t[p.lookups]);
    for (int64_t bag = 0; bag < p.bags; ++bag)
      std::fill(&bag_of_[p.begin(bag)], &bag_of_[p.begin(bag + 1)], static_cast<int32_t>(bag));
    view_.bag_of = bag_of_.get();
  }
}

void values(const std::vector<ValuesTask>& tasks, const Parallel& parallel) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tasks.size(); ++t)
    cut_groups(&pieces, t, tasks[t].gradient, parallel.threads());
  run_pieces(pieces, parallel, [&](const Piece& piece) {
    kernels().values(tasks[piece.task].gradient, tasks[piece.task].values, piece.begin, piece.end);
  });
}

void update(const std::vector<UpdateTask>& tasks, const Parallel& parallel) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < tasks.size(); ++t)
    cut_groups(&pieces, t, tasks[t].gradient, parallel.threads());
  run_pieces(pieces, parallel, [&](const Piece& piece) {
    kernels().update(tasks[piece.task], piece.begin, piece.end);
  });
}

void initialize(const InitializeTask& task, const Parallel& parallel) {
  std::vector<Piece> pieces;
  const int64_t count = piece_count(task.table.rows * task.table.dim, parallel.threads());
  cut(&pieces, 0, task.table.rows, count, [](int64_t row) { return row; });
  run_pieces(pieces, parallel,
             [&](const Piece& piece) { kernels().initialize(task, piece.begin, piece.end); });
}

}  // namespace merlin
