// From the lookups of one table to its distinct rows, each with the places it was looked up from: a
// stable radix sort over as many bits as the rows need.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel.h"
#include "types.h"

namespace merlin {

class Grouping {
 public:
  // Features share one table of `rows` rows. Lines outside the table are left out.
  // Throws std::length_error when a source doesn't fit 32 bits or a row doesn't.
  Grouping(const Pooling* features, int64_t count, int64_t rows);

  // Sorts; afterwards size() and lookups() are known.
  void sort(const Parallel& parallel);

  int64_t size() const { return size_; }        // U
  int64_t lookups() const { return lookups_; }  // M

  // Writes rows [U], offsets [U + 1] and sources [M].
  void emit(const Parallel& parallel, int64_t* rows, int32_t* offsets, uint32_t* sources) const;

 private:
  template <class Visit>
  void visit(int64_t begin, int64_t end, Visit&& visit) const;
  int64_t chunk(int64_t count, int64_t i) const { return count * i / chunks_; }

  const Pooling* features_;
  int64_t feature_count_;
  int64_t rows_;
  std::vector<int64_t> first_;  // [features + 1], where each feature's lookups begin
  bool by_position_ = false;
  int shift_;
  int64_t chunks_ = 1;
  int64_t size_ = 0, lookups_ = 0;
  std::unique_ptr<uint64_t[]> buffers_[2];  // (row << 32 | source), [M]
  const uint64_t* sorted_ = nullptr;
  std::vector<int64_t> chunk_sizes_;  // distinct rows that begin in each chunk, summed up
};

}  // namespace merlin
