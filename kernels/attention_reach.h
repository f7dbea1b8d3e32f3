// Sliding windows: a query at position i sees the keys at positions j with i − j ≤ reach and, where attention is not
// causal, j − i ≤ reach.
#pragma once

#include <cstdint>
#include <limits>

namespace hadal {

inline constexpr int32_t kWholeSentence = std::numeric_limits<int32_t>::max();  // no window

// The first position that the last one of `length` sees.
constexpr int64_t FirstPosition(int64_t length, int32_t reach) { return length > reach ? length - 1 - reach : 0; }

}  // namespace hadal
