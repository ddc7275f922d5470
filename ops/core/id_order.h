// The order in which ids are handled: that of their hashes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace merlin {

// Sorts by hash: by the high bits in two passes where there are many, then what they leave.
using Order = std::vector<std::pair<uint64_t, uint32_t>>;

inline void sort(Order* order) {
  constexpr int kDigit = 11, kShift = 64 - 2 * kDigit;
  const size_t n = order->size();
  if (n < 512) {
    std::sort(order->begin(), order->end());
    return;
  }
  Order other(n);
  for (int pass = 0; pass < 2; ++pass) {
    const int shift = kShift + pass * kDigit;
    std::vector<uint32_t> next((1 << kDigit) + 1);
    const auto digit = [&](uint64_t hash) { return (hash >> shift) & ((1 << kDigit) - 1); };
    for (const auto& o : *order) ++next[digit(o.first) + 1];
    for (size_t d = 1; d < next.size(); ++d) next[d] += next[d - 1];
    for (const auto& o : *order) other[next[digit(o.first)]++] = o;
    order->swap(other);
  }
  for (size_t i = 0, end; i < n; i = end) {
    bool sorted = true;
    for (end = i + 1; end < n && (*order)[end].first >> kShift == (*order)[i].first >> kShift;
         ++end)
      sorted &= (*order)[end - 1] <= (*order)[end];
    if (!sorted) std::sort(order->begin() + i, order->begin() + end);
  }
}

}  // namespace merlin
