// How fast this machine can sum the rows of bags, with nothing else around it.
//
// The ids are those of the benchmark. Rows lie on huge pages, are prefetched a given number of
// lookups ahead and summed in registers; the threads share the work without a framework, and the
// output buffer is reused. The caller tries every setting and keeps the fastest. Built by
// adapters/gather_limit.py when the benchmark runs; called through ctypes.

#include <immintrin.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// One thread's share: consecutive bags of one table.
struct Span {
  const float* table;  // [rows, dim]
  const int64_t* ids;  // [bags * hotness]
  float* out;          // [bags, dim]
  int64_t bags;
  int64_t hotness;
  int64_t dim;
  int64_t distance;  // lookups between a prefetch and its use; 0: no prefetch
  bool stream;       // write the output past the caches
};

inline void prefetch_row(const float* row, int64_t dim) {
  for (int64_t c = 0; c < dim; c += 16)
    _mm_prefetch(reinterpret_cast<const char*>(row + c), _MM_HINT_T0);
}

// The same loop for both instruction sets: kRegisters vectors of kLanes floats hold the sum.
#define DEFINE_SUM(NAME, TARGET, VECTOR, LANES, LOAD, ADD, STORE, STREAM)               \
  template <int kDim, bool kPrefetch, bool kStream>                                     \
  __attribute__((target(TARGET))) void NAME(const Span& s) {                            \
    constexpr int kRegisters = kDim / LANES;                                            \
    const int64_t* id = s.ids;                                                          \
    const int64_t* const end = s.ids + s.bags * s.hotness;                              \
    const int64_t* ahead = id + s.distance;                                             \
    float* out = s.out;                                                                 \
    for (int64_t b = 0; b < s.bags; ++b, out += kDim) {                                 \
      VECTOR sum[kRegisters];                                                           \
      for (int64_t k = 0; k < s.hotness; ++k, ++id) {                                   \
        if (kPrefetch && ahead < end) prefetch_row(s.table + *ahead++ * kDim, kDim);    \
        const float* row = s.table + *id * kDim;                                        \
        for (int r = 0; r < kRegisters; ++r)                                            \
          sum[r] = k == 0 ? LOAD(row + r * LANES) : ADD(sum[r], LOAD(row + r * LANES)); \
      }                                                                                 \
      for (int r = 0; r < kRegisters; ++r) {                                            \
        if (kStream)                                                                    \
          STREAM(out + r * LANES, sum[r]);                                              \
        else                                                                            \
          STORE(out + r * LANES, sum[r]);                                               \
      }                                                                                 \
    }                                                                                   \
  }

DEFINE_SUM(sum_avx2, "avx2", __m256, 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps,
           _mm256_stream_ps)
DEFINE_SUM(sum_avx512, "avx512f", __m512, 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps,
           _mm512_stream_ps)
#undef DEFINE_SUM

void sum_any(const Span& s) {  // dims without a kernel of their own
  for (int64_t b = 0; b < s.bags; ++b) {
    float* out = s.out + b * s.dim;
    for (int64_t c = 0; c < s.dim; ++c) out[c] = 0;
    for (int64_t k = 0; k < s.hotness; ++k) {
      const float* row = s.table + s.ids[b * s.hotness + k] * s.dim;
      for (int64_t c = 0; c < s.dim; ++c) out[c] += row[c];
    }
  }
}

template <int kDim>
void sum_dim(const Span& s, bool avx512) {
  const bool prefetch = s.distance > 0;
  if (avx512) {
    if (prefetch)
      s.stream ? sum_avx512<kDim, true, true>(s) : sum_avx512<kDim, true, false>(s);
    else
      s.stream ? sum_avx512<kDim, false, true>(s) : sum_avx512<kDim, false, false>(s);
  } else {
    if (prefetch)
      s.stream ? sum_avx2<kDim, true, true>(s) : sum_avx2<kDim, true, false>(s);
    else
      s.stream ? sum_avx2<kDim, false, true>(s) : sum_avx2<kDim, false, false>(s);
  }
}

void sum(const Span& s, bool avx512) {
  if (__builtin_cpu_supports("avx2")) {
    switch (s.dim) {
      case 16:
        return sum_dim<16>(s, avx512);
      case 32:
        return sum_dim<32>(s, avx512);
      case 64:
        return sum_dim<64>(s, avx512);
      case 128:
        return sum_dim<128>(s, avx512);
    }
  }
  sum_any(s);
}

// Helpers spin for a while after each call, so that back-to-back steps start at once, then sleep.
class Team {
 public:
  explicit Team(int threads) {
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { loop(i); });
  }
  ~Team() {
    stop_ = true;
    wake();
    for (auto& helper : helpers_) helper.join();
  }
  int size() const { return static_cast<int>(helpers_.size()) + 1; }

  void run(const std::function<void(int)>& work) {
    work_ = &work;
    left_ = static_cast<int>(helpers_.size());
    wake();
    work(0);
    while (left_ > 0) _mm_pause();
  }

 private:
  void wake() {
    round_.fetch_add(1);
    round_.notify_all();
  }
  void loop(int index) {
    uint32_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < 20000 && round_ == seen; ++spin) _mm_pause();
      round_.wait(seen);
      ++seen;
      if (stop_) return;
      (*work_)(index);
      left_.fetch_sub(1);
    }
  }

  std::vector<std::thread> helpers_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint32_t> round_{0};
  std::atomic<int> left_{0};
  std::atomic<bool> stop_{false};
};

size_t mapped_size(size_t floats) { return (floats * sizeof(float) / kHugePage + 2) * kHugePage; }

}  // namespace

extern "C" {

void* gather_team(int threads) { return new Team(threads); }
void gather_team_free(void* team) { delete static_cast<Team*>(team); }
int gather_has_avx512() { return __builtin_cpu_supports("avx512f") ? 1 : 0; }

// Zeroed memory on huge pages where the kernel grants them; null when there is none.
float* gather_alloc(size_t floats) {
  const size_t size = mapped_size(floats);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, size, MADV_HUGEPAGE);
  return static_cast<float*>(memory);
}
void gather_free(float* memory, size_t floats) { munmap(memory, mapped_size(floats)); }

// Touches every page with values that differ from row to row.
void gather_fill(void* team, float* memory, size_t floats) {
  auto* t = static_cast<Team*>(team);
  t->run([&](int i) {
    const size_t begin = floats / t->size() * i;
    const size_t end = i + 1 == t->size() ? floats : floats / t->size() * (i + 1);
    for (size_t k = begin; k < end; ++k)
      memory[k] = static_cast<float>(static_cast<int32_t>(k * 2654435761u)) * 2e-11f;
  });
}

// tables: T pointers to [rows, dim]; ids [T, bags, hotness]; out [T, bags, dim]. The threads share
// either whole tables or, table after table, its bags.
void gather_sum(void* team, int64_t tables, const float* const* table, const int64_t* ids,
                int64_t bags, int64_t hotness, int64_t dim, float* out, int avx512,
                int64_t distance, int whole_tables, int stream) {
  auto* t = static_cast<Team*>(team);
  t->run([&](int i) {
    const int64_t n = t->size();
    for (int64_t k = whole_tables ? i : 0; k < tables; k += whole_tables ? n : 1) {
      const int64_t begin = whole_tables ? 0 : bags * i / n;
      const int64_t end = whole_tables ? bags : bags * (i + 1) / n;
      sum({table[k], ids + (k * bags + begin) * hotness, out + (k * bags + begin) * dim,
           end - begin, hotness, dim, distance, stream != 0},
          avx512 != 0);
    }
    _mm_sfence();
  });
}
}
