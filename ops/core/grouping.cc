#include "grouping.h"

#include <algorithm>
#include <stdexcept>

namespace merlin {
namespace {

constexpr int kDigitBits = 11;
// Less than this is not worth a second thread.
constexpr int64_t kLookupsAChunk = 1 << 14;

int bit_width(uint64_t x) { return x == 0 ? 0 : 64 - __builtin_clzll(x); }

// Counts by bucket. Popular rows come again and again: two sets of counters in turn, so that an
// increment needn't wait for the one before.
class Counter {
 public:
  explicit Counter(int64_t buckets) : buckets_(buckets), counts_(2 * buckets) {}

  void add(uint64_t bucket) {
    ++counts_[turn_ + bucket];
    turn_ ^= buckets_;
  }

  void write(uint32_t* sums) const {
    for (int64_t b = 0; b < buckets_; ++b) sums[b] = counts_[b] + counts_[buckets_ + b];
  }

 private:
  int64_t buckets_, turn_ = 0;
  std::vector<uint32_t> counts_;
};

}  // namespace

Grouping::Grouping(const Pooling* features, int64_t count, int64_t rows)
    : features_(features), feature_count_(count), rows_(rows), shift_(source_shift(count)) {
  for (int64_t f = 0; f < count; ++f) by_position_ |= needs_position(features[f]);
  first_.push_back(0);
  const int64_t limit = int64_t{1} << shift_;
  for (int64_t f = 0; f < count; ++f) {
    const int64_t places = by_position_ ? features[f].lookups : features[f].bags;
    if (places > limit || first_.back() + features[f].lookups > INT32_MAX)
      throw std::length_error("one step has more lookups of one table than 32 bits can number");
    first_.push_back(first_.back() + features[f].lookups);
  }
  if (rows > (int64_t{1} << 32)) throw std::length_error("a table of more than 2^32 rows");
}

// Calls visit(line, source) for lookups [begin, end) of the features laid end to end.
template <class Visit>
void Grouping::visit(int64_t begin, int64_t end, Visit&& visit) const {
  for (int64_t f = 0; f < feature_count_; ++f) {
    const Pooling p = features_[f];  // a copy: nothing that visit() writes can change it
    const int64_t low = std::max(begin - first_[f], int64_t{0});
    const int64_t high = std::min(end - first_[f], p.lookups);
    if (low >= high) continue;
    const uint64_t tag = static_cast<uint64_t>(f) << shift_;
    if (by_position_ || (!p.row_splits && p.hotness == 1)) {
      for (int64_t i = low; i < high; ++i) visit(p.lines[i], tag | static_cast<uint64_t>(i));
      continue;
    }
    int64_t bag = p.row_splits ? std::upper_bound(p.row_splits, p.row_splits + p.bags + 1, low) -
                                     p.row_splits - 1
                               : low / p.hotness;
    for (int64_t i = low; i < high; ++bag)
      for (const int64_t stop = std::min(high, p.begin(bag + 1)); i < stop; ++i)
        visit(p.lines[i], tag | static_cast<uint64_t>(bag));
  }
}

void Grouping::sort(const Parallel& parallel) {
  const int64_t total = first_.back();
  const int bits = std::max(bit_width(static_cast<uint64_t>(std::max<int64_t>(rows_ - 1, 0))), 1);
  const int passes = (bits + kDigitBits - 1) / kDigitBits, digit = (bits + passes - 1) / passes;
  const int64_t buckets = int64_t{1} << digit;
  const uint64_t mask = buckets - 1, rows = static_cast<uint64_t>(rows_);
  chunks_ = std::clamp<int64_t>(total / kLookupsAChunk, 1, parallel.threads());
  for (int i = 0; i < (passes > 1 ? 2 : 1); ++i) buffers_[i].reset(new uint64_t[total]);
  // 32 bits suffice, and can't alias the 64-bit numbers beside them.
  std::vector<uint32_t> places(chunks_ * buckets);

  // Turns each chunk's counts into where its elements of each bucket go; returns their sum.
  const auto place = [&] {
    uint32_t sum = 0;
    for (int64_t b = 0; b < buckets; ++b)
      for (int64_t c = 0; c < chunks_; ++c) {
        const uint32_t count = places[c * buckets + b];
        places[c * buckets + b] = sum;
        sum += count;
      }
    return sum;
  };

  parallel.run(chunks_, [&, mask, rows](int64_t c) {
    Counter count(buckets);
    visit(chunk(total, c), chunk(total, c + 1), [&, mask, rows](int64_t line, uint64_t) {
      const uint64_t row = static_cast<uint64_t>(line);
      if (row < rows) count.add(row & mask);
    });
    count.write(&places[c * buckets]);
  });
  lookups_ = place();
  parallel.run(chunks_, [&, mask, rows](int64_t c) {
    uint32_t* next = &places[c * buckets];
    uint64_t* to = buffers_[0].get();
    visit(chunk(total, c), chunk(total, c + 1), [=](int64_t line, uint64_t source) {
      const uint64_t row = static_cast<uint64_t>(line);
      if (row < rows) to[next[row & mask]++] = row << 32 | source;
    });
  });

  for (int pass = 1; pass < passes; ++pass) {
    const uint64_t* from = buffers_[(pass - 1) % 2].get();
    uint64_t* to = buffers_[pass % 2].get();
    const int low = 32 + pass * digit;
    parallel.run(chunks_, [&, mask](int64_t c) {
      Counter count(buckets);
      for (int64_t i = chunk(lookups_, c), end = chunk(lookups_, c + 1); i < end; ++i)
        count.add((from[i] >> low) & mask);
      count.write(&places[c * buckets]);
    });
    place();
    parallel.run(chunks_, [&, mask](int64_t c) {
      uint32_t* next = &places[c * buckets];
      for (int64_t i = chunk(lookups_, c), end = chunk(lookups_, c + 1); i < end; ++i)
        to[next[(from[i] >> low) & mask]++] = from[i];
    });
  }
  sorted_ = buffers_[(passes - 1) % 2].get();

  chunk_sizes_.assign(chunks_ + 1, 0);
  parallel.run(chunks_, [&](int64_t c) {
    int64_t begins = 0;
    for (int64_t i = chunk(lookups_, c), end = chunk(lookups_, c + 1); i < end; ++i)
      begins += i == 0 || (sorted_[i] >> 32) != (sorted_[i - 1] >> 32);
    chunk_sizes_[c + 1] = begins;
  });
  for (int64_t c = 0; c < chunks_; ++c) chunk_sizes_[c + 1] += chunk_sizes_[c];
  size_ = chunk_sizes_[chunks_];
}

void Grouping::emit(const Parallel& parallel, int64_t* rows, int32_t* offsets,
                    uint32_t* sources) const {
  const uint64_t* sorted = sorted_;
  const auto begins = [sorted](int64_t i) {
    return i == 0 || sorted[i] >> 32 != sorted[i - 1] >> 32;
  };
  offsets[0] = 0;
  // A chunk writes the rows that begin in it, to their end. No branch asks whether a row begins:
  // for ids as they come it would be guessed wrong too often.
  parallel.run(chunks_, [&](int64_t c) {
    int64_t i = chunk(lookups_, c), u = chunk_sizes_[c];
    const int64_t end = chunk(lookups_, c + 1);
    const auto write = [=, &u](int64_t at, bool first) {
      u += first;
      rows[u - 1] = static_cast<int64_t>(sorted[at] >> 32);
      offsets[u] = static_cast<int32_t>(at + 1);
      sources[at] = static_cast<uint32_t>(sorted[at]);
    };
    while (i < end && !begins(i)) ++i;
    if (i == end) return;
    for (; i < end; ++i) write(i, begins(i));
    for (; i < lookups_ && !begins(i); ++i) write(i, false);
  });
}

}  // namespace merlin
