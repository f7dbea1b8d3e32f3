// Chooses which of many rows (ranks, stages) a drawing or a table shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hadal {

// Returns the indices of the rows to show out of `count`: all, or `most` of them, evenly spread, with both ends.
inline std::vector<int> ChooseRows(int count, int most) {
  const int shown = std::max(0, std::min(count, most));
  std::vector<int> rows(shown);
  for (int i = 1; i < shown; ++i) rows[i] = static_cast<int>(static_cast<int64_t>(i) * (count - 1) / (shown - 1));
  return rows;
}

}  // namespace hadal
