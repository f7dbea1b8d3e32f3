// Chooses which of many rows (ranks, stages) a drawing or a table shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hadal {

// Returns the ascending indices of the rows to show: all `count`, or `most` of them if that is less, evenly spread from
// the first to the last (`most` = 1: the first).
inline std::vector<int> ChooseRows(int count, int most) {
  const int shown = std::max(0, std::min(count, most));
  std::vector<int> rows(shown);
  for (int i = 1; i < shown; ++i) rows[i] = static_cast<int>(static_cast<int64_t>(i) * (count - 1) / (shown - 1));
  return rows;
}

}  // namespace hadal
