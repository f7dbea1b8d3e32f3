// The reference for kernels/top_candidates.h: sorts a whole row [columns] and returns the columns of the `count`
// largest logits (of equals the lower column first), then -1; never a NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace hadal::testing {

inline std::vector<int32_t> TopCandidatesReference(const float* row, int64_t columns, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t v = 0; v < columns; ++v) {
    if (!std::isnan(row[v])) tokens.push_back(static_cast<int32_t>(v));
  }
  std::stable_sort(tokens.begin(), tokens.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  tokens.resize(count, -1);
  return tokens;
}

}  // namespace hadal::testing
