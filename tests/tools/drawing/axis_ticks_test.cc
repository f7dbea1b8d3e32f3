#include "tools/drawing/axis_ticks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hadal {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(AxisTicks, RoundNumbersWithinTheRange) {
  EXPECT_THAT(AxisTicks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(AxisTicks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
  EXPECT_THAT(AxisTicks(3, 3, 4), IsEmpty());
  EXPECT_THAT(AxisTicks(4, 3, 4), IsEmpty());
}

TEST(AxisTicks, NeverMoreThanAskedForAndNeverOutside) {
  for (const double low : {0.0, -17.3, 1e-7, 123.456}) {
    for (const double span : {1e-9, 0.3, 1.0, 7.7, 99.0, 1e8}) {
      for (const int most : {1, 3, 8}) {
        const std::vector<double> ticks = AxisTicks(low, low + span, most);
        EXPECT_LE(ticks.size(), static_cast<size_t>(most) + 1);
        EXPECT_TRUE(most == 1 || !ticks.empty()) << low << " + " << span << ", " << most;
        for (const double tick : ticks) {
          EXPECT_GE(tick, low - 1e-6 * span);
          EXPECT_LE(tick, low + span * (1 + 1e-6));
        }
      }
    }
  }
}

TEST(LogarithmicTicks, ArePowersOfTenWhereThereAreTwo) {
  EXPECT_THAT(LogarithmicTicks(0.02, 30, 5), ElementsAre(DoubleNear(0.1, 1e-12), 1, 10));
  EXPECT_LE(LogarithmicTicks(1e-30, 1e10, 5).size(), 6u);
  EXPECT_THAT(LogarithmicTicks(1.5, 8, 5), ElementsAre(2, 5)) << "fewer than two powers";
  EXPECT_THAT(LogarithmicTicks(6, 8, 4), ElementsAre(6, 6.5, 7, 7.5, 8));
  EXPECT_TRUE(LogarithmicTicks(3, 3, 5).empty());
}

TEST(AxisTicks, LabelsAreShort) {
  EXPECT_EQ(TickLabel(0), "0");
  EXPECT_EQ(TickLabel(0.05), "0.05");
  EXPECT_EQ(TickLabel(2500), "2500");
}

}  // namespace
}  // namespace hadal
