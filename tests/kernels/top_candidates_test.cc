#include "kernels/top_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/top_candidates_reference.h"

namespace hadal {
namespace {

using testing::NormalValues;
using testing::TopCandidatesReference;

void ExpectReference(const std::vector<float>& logits, int64_t rows, int64_t columns, int64_t count) {
  for (const int threads : {1, 3}) {
    std::vector<int32_t> tokens(rows * count, 12345);
    std::vector<int32_t> best(rows, 12345);
    std::vector<float> values(rows * count), also(rows);
    const auto named = static_cast<int32_t>(columns / 2);
    TopCandidates(Stream::Cpu(threads), {.logits = {logits.data(), rows, columns},
                                         .also = named,
                                         .tokens = {tokens.data(), rows, count},
                                         .values = {values.data(), rows, count},
                                         .also_values = {also.data(), rows},
                                         .best = {best.data(), rows}});
    for (int64_t i = 0; i < rows; ++i) {
      const float named_logit = logits[i * columns + named];
      EXPECT_TRUE(also[i] == named_logit || std::isnan(named_logit));
      for (int64_t k = i * count; k < (i + 1) * count; ++k) {
        EXPECT_EQ(values[k], tokens[k] >= 0 ? logits[i * columns + tokens[k]] : -INFINITY);
      }
      const std::vector<int32_t> actual(tokens.begin() + i * count, tokens.begin() + (i + 1) * count);
      EXPECT_EQ(actual, TopCandidatesReference(logits.data() + i * columns, columns, count))
          << "row " << i << " of " << columns;
      EXPECT_EQ(best[i], std::max(tokens[i * count], 0));
    }
  }
}

TEST(TopCandidatesTest, EqualsSortingOnEveryInstructionSet) {
  testing::ForEachInstructionSet([] {
    for (const int64_t columns : {1, 5, 16, 33, 1000}) {
      for (const int64_t count : {1, 4, 11, 40}) ExpectReference(NormalValues(5 * columns, 3), 5, columns, count);
    }
  });
}

TEST(TopCandidatesTest, EqualLogitsComeInColumnOrder) {
  std::vector<float> logits = NormalValues(4 * 300, 7);
  for (float& z : logits) z = std::round(2 * z);
  ExpectReference(logits, 4, 300, 12);
  ExpectReference(std::vector<float>(100, -std::numeric_limits<float>::infinity()), 1, 100, 5);
}

TEST(TopCandidatesTest, NeverChoosesNaN) {
  std::vector<float> logits = NormalValues(2 * 100, 9);
  for (size_t v = 0; v < 100; v += 3) logits[v] = NAN;
  ExpectReference(logits, 2, 100, 8);
  ExpectReference(std::vector<float>(70, NAN), 1, 70, 4);
}

}  // namespace
}  // namespace hadal
