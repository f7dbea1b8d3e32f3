#include "kernels/scatter_rows.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

// Both sides are columns of something wider, as keys and values are of one cache row.
TEST(ScatterRows, EveryRowGoesToItsPlaceAndNothingElseChanges) {
  for (const int32_t width : {1, 3, 16, 33}) {
    for (const auto& [count, rows] : {std::pair(1, 1), {4, 4}, {2, 7}, {9, 40}}) {
      const std::vector<float> x = NormalValues(count * width, 1), before = NormalValues(rows * width, 2);
      std::vector<int32_t> places;  // different ones, in no order
      for (int32_t i = 0; i < count; ++i) places.push_back((3 * i + rows - 1) % rows);
      std::vector<float> expected = before;
      for (int32_t i = 0; i < count; ++i) {
        for (int32_t c = 0; c < width; ++c) expected[places[i] * width + c] = x[i * width + c];
      }
      StridedMatrix from(x, count, width), to(before, rows, width, /*offset=*/2, /*padding=*/5);
      ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {places.data(), count}, .y = to.view()});
      EXPECT_EQ(to.dense(), expected) << count << " of " << rows << " rows of " << width;
      EXPECT_TRUE(to.guards_intact());
    }
  }
}

TEST(ScatterRows, NoRowsChangeNothing) {
  OwnedMatrix to(2, 3, 7.0f);
  ScatterRows(Stream::Cpu(1), {.x = ConstMatrix(), .index = ConstTokens(), .y = to.view()});
  EXPECT_EQ(to.values, std::vector<float>(6, 7.0f));
}

TEST(ScatterRowsDeathTest, PlacesBeyondTheRowsAndOtherWidthsAreRefused) {
  const OwnedMatrix from(2, 3, 1.0f);
  OwnedMatrix to(4, 3), narrow(4, 2);
  const std::vector<int32_t> good = {0, 3}, above = {0, 4}, below = {-1, 2};
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {above.data(), 2}, .y = to.view()}), "4 vs. 4");
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {below.data(), 2}, .y = to.view()}), "-1 vs. 0");
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {good.data(), 1}, .y = to.view()}), "1 vs. 2");
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {good.data(), 2}, .y = narrow.view()}),
               "2 vs. 3");
}

}  // namespace
}  // namespace hadal::testing
