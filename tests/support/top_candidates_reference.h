// The reference for kernels/top_candidates.h: sorts a whole row [columns] and returns the columns of the `count`
// largest logits (of equals the lower column first), then -1; never a NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "gtest/gtest.h"
#include "tests/support/random_inputs.h"

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

// Of all rows, one behind the other.
struct TopCandidatesResults {
  std::vector<int32_t> tokens, best;
  std::vector<float> values, also;
};
using TopCandidatesRun = TopCandidatesResults(const std::vector<float>& logits, int64_t rows, int64_t count,
                                              int32_t also);

inline void ExpectTopCandidates(const std::function<TopCandidatesRun>& run, const std::vector<float>& logits,
                                int64_t rows, int64_t count) {
  const int64_t columns = std::ssize(logits) / rows;
  const auto also = static_cast<int32_t>(columns / 2);
  const TopCandidatesResults found = run(logits, rows, count, also);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const row = logits.data() + i * columns;
    const auto first = found.tokens.begin() + i * count;
    const std::vector<int32_t> expected = TopCandidatesReference(row, columns, count);
    EXPECT_EQ(std::vector<int32_t>(first, first + count), expected) << "row " << i << " of " << columns;
    EXPECT_EQ(found.best[i], std::max(expected[0], 0));
    for (int64_t k = 0; k < count; ++k) {
      EXPECT_EQ(found.values[i * count + k], expected[k] >= 0 ? row[expected[k]] : -INFINITY);
    }
    EXPECT_TRUE(found.also[i] == row[also] || (std::isnan(found.also[i]) && std::isnan(row[also])));
  }
}

// Sorting's order; equal logits in the order of columns; a NaN never.
inline void ExpectTopCandidates(const std::function<TopCandidatesRun>& run) {
  for (const int64_t columns : {1, 5, 16, 33, 256, 1000}) {
    for (const int64_t count : {1, 4, 11, 40}) ExpectTopCandidates(run, NormalValues(5 * columns, 3), 5, count);
  }
  std::vector<float> logits = NormalValues(4 * 600, 7);
  for (float& z : logits) z = std::round(2 * z);
  ExpectTopCandidates(run, logits, 4, 12);
  for (size_t v = 0; v < logits.size(); v += 3) logits[v] = NAN;
  ExpectTopCandidates(run, logits, 4, 12);
  ExpectTopCandidates(run, std::vector<float>(70, NAN), 1, 4);
  ExpectTopCandidates(run, std::vector<float>(100, -INFINITY), 1, 5);
}

}  // namespace hadal::testing
