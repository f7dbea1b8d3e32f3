#include "tools/drawing/depth_heat_map.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(DepthHeatMap, ColoursSpanTheRangeOfTheCells) {
  const std::string svg = DrawDepthHeatMap({.title = "Gradients",
                                            .unit = "2-norm",
                                            .encoder_sublayers = 1,
                                            .columns = {0, 40},
                                            .records = {{0.001f, 10}, {0.1f, kNone}}});
  // The lowest and the highest colour are each in the bar and once in the map.
  EXPECT_EQ(Count(svg, "#3e1250"), 2u);
  EXPECT_EQ(Count(svg, "#f8e43e"), 2u);
  EXPECT_THAT(svg, AllOf(HasSubstr("Gradients"), HasSubstr("2-norm"), HasSubstr(">40<"), HasSubstr(">0.100<"),
                         HasSubstr("encoder"), HasSubstr("decoder"), Not(HasSubstr("nan"))));
}

TEST(DepthHeatMap, ANumberThatIsNotFiniteIsRedAndExplained) {
  DepthHeatMap map{.columns = {0, 1}, .records = {{1, 2}, {3, 4}}};
  EXPECT_EQ(Count(DrawDepthHeatMap(map), "#e6194b"), 0u);
  EXPECT_THAT(DrawDepthHeatMap(map), Not(HasSubstr("not finite")));
  map.records[1][0] = INFINITY;
  EXPECT_EQ(Count(DrawDepthHeatMap(map), "#e6194b"), 2u) << "the cell and the legend";
  EXPECT_THAT(DrawDepthHeatMap(map), HasSubstr(">not finite<"));
}

TEST(DepthHeatMap, OfManyRecordsTheLastAndThoseThatAreNotFiniteAreDrawn) {
  DepthHeatMap map;
  for (int64_t step = 0; step < 161; ++step) {
    map.columns.push_back(step);
    map.records.push_back({1, 2});
  }
  for (const size_t broken : {100, 160}) {  // no column's record, and the last
    DepthHeatMap one = map;
    one.records[broken][0] = INFINITY;
    EXPECT_EQ(Count(DrawDepthHeatMap(one), "#e6194b"), 2u) << broken;
  }
}

TEST(DepthHeatMap, ACommonRangeHoldsAllMapsNumbers) {
  const DepthHeatMap one{.columns = {0}, .records = {{0.5f, 0, kNone}}},
      two{.columns = {0}, .records = {{8, INFINITY}}};
  EXPECT_EQ(CommonRange({one, two}), std::pair(0.5, 8.0)) << "0 is on no logarithmic scale";
  DepthHeatMap linear = one;
  linear.logarithmic = false;
  EXPECT_EQ(CommonRange({linear}), std::pair(0.0, 0.5));
  EXPECT_EQ(CommonRange({DepthHeatMap{.columns = {0}, .records = {{kNone}}}}), std::nullopt);
}

TEST(DepthHeatMap, ARangeHoldsTheColours) {
  DepthHeatMap map{.columns = {0}, .records = {{0, 1e-9f, 1, 1e3f}}, .range = std::pair(1e-6, 1.0)};
  const std::string svg = DrawDepthHeatMap(map);
  // Two cells of the lowest colour are one rectangle, and two of the highest; the bar has each once more.
  EXPECT_EQ(Count(svg, "#3e1250"), 2u);
  EXPECT_EQ(Count(svg, "#f8e43e"), 2u);
  EXPECT_EQ(Count(svg, "<rect"), 2u + 32);
  EXPECT_THAT(svg, AllOf(HasSubstr(">1.00e-06<"), HasSubstr(">1.00<")));
}

TEST(DepthHeatMap, ThousandsOfSublayersAndStepsBecomeAFewThousandCells) {
  DepthHeatMap map;
  for (int64_t step = 0; step < 400; ++step) {
    map.columns.push_back(step);
    map.records.emplace_back(2500);
    for (size_t s = 0; s < 2500; ++s) map.records.back()[s] = 1.0f + static_cast<float>((s * 31 + step * 17) % 101);
  }
  EXPECT_LE(Count(DrawDepthHeatMap(map), "<rect"), 60u * 80 + 32);
}

TEST(DepthHeatMap, NothingToShowIsAnEmptyMap) {
  const std::string svg = DrawDepthHeatMap({.title = "t", .columns = {3}, .records = {{kNone, kNone}}});
  EXPECT_EQ(Count(svg, "<rect"), 0u);
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

}  // namespace
}  // namespace hadal
