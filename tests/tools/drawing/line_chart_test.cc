#include "tools/drawing/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tools/drawing/stacked_bars.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ThinPoints, KeepsSpikesAndOrder) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, i == 4321 ? 100 : std::sin(0.01 * i));
  const auto thinned = ThinPoints(points, 100);
  EXPECT_LE(thinned.size(), 200u);
  EXPECT_TRUE(std::is_sorted(thinned.begin(), thinned.end()));
  EXPECT_TRUE(std::any_of(thinned.begin(), thinned.end(), [](const auto& p) { return p.second == 100; }));
  EXPECT_EQ(ThinPoints({{0, 1}, {1, 2}}, 100).size(), 2u);
}

TEST(ThinPoints, KeepsASpikeBesideAGap) {
  const std::vector<std::pair<double, double>> points = {{0, 2}, {1, 50}, {2, 2.1}, {3, NAN}, {4, 2.2}, {5, 2}};
  const auto thinned = ThinPoints(points, 1);
  ASSERT_EQ(thinned.size(), 3u);
  EXPECT_EQ(thinned[1].second, 50);
  EXPECT_TRUE(std::isnan(thinned[2].second)) << "the line is interrupted";
}

TEST(LineChart, ALongLegendMakesThePictureHigher) {
  LineChart chart;
  for (int i = 0; i < 30; ++i)
    chart.series.push_back({"method=deepnorm,depth=18: validation", "#000", {{0, 1}, {1, 2}}});
  EXPECT_GT(LineChartHeight(chart), 400);
  const std::string svg = DrawLineChart(chart);
  const size_t points = svg.find("<polyline points=\"");
  ASSERT_NE(points, std::string::npos);
  const size_t first = svg.find(',', points), second = svg.find(',', first + 1);
  EXPECT_GT(std::stod(svg.substr(first + 1)), std::stod(svg.substr(second + 1)) + 50) << "larger values are higher up";
}

TEST(LineChart, WhatIsNotFiniteIsCountedAndNotDrawn) {
  const std::string svg = DrawLineChart({.title = "Loss",
                                         .x_label = "step",
                                         .y_label = "nats",
                                         .series = {{"run", "#000", {{0, 1}, {1, NAN}, {2, 3}, {3, 4}}}}});
  EXPECT_THAT(svg, AllOf(HasSubstr("run (1 not finite)"), HasSubstr(">nats<"), Not(HasSubstr("nan"))));
}

// A decade is as high as any other; 0 has no place, and does not count as not finite.
TEST(LineChart, ALogarithmicAxis) {
  LineChart chart{.series = {{"run", "#000", {{0, 0.01}, {1, 1}, {2, 0}, {3, 100}}}}, .logarithmic = true};
  const std::string svg = DrawLineChart(chart);
  EXPECT_THAT(svg, AllOf(HasSubstr(">0.01<"), HasSubstr(">1<"), HasSubstr(">100<"), Not(HasSubstr("not finite"))));
  const size_t points = svg.find("<polyline points=\"");
  std::vector<double> heights;
  for (size_t comma = svg.find(',', points); heights.size() < 3; comma = svg.find(',', comma + 1)) {
    heights.push_back(std::stod(svg.substr(comma + 1)));
  }
  EXPECT_NEAR(heights[0] - heights[1], heights[1] - heights[2], 0.02);
}

TEST(LineChart, ALongLegendGoesOnInAFurtherLine) {
  LineChart chart{.title = "t"};
  for (int i = 0; i < 9; ++i) chart.series.push_back({"a run with a long name", "#000", {{0, 1}, {1, 2}}});
  const std::string svg = DrawLineChart(chart);
  EXPECT_THAT(svg, AllOf(HasSubstr("y=\"35.00\" font-size=\"11.0\""), HasSubstr("y=\"65.00\" font-size=\"11.0\"")));
}

TEST(LineChart, NothingAndOnePointAndAConstantAreCharts) {
  EXPECT_THAT(DrawLineChart({.title = "t"}), HasSubstr("</svg>"));
  EXPECT_THAT(DrawLineChart({.series = {{"a", "#000", {{1, 1}}}}}), HasSubstr("<circle"));
  EXPECT_THAT(DrawLineChart({.series = {{"a", "#000", {{1, 5}, {2, 5}}}}}),
              AllOf(HasSubstr("<polyline"), Not(HasSubstr("nan"))));
}

TEST(StackedBars, LossesToTheRightGainsToTheLeft) {
  const std::string svg = DrawStackedBars({.title = "t",
                                           .unit = "%",
                                           .parts = {{"loss", "#f00"}, {"gain", "#0f0"}},
                                           .rows = {{"row", {30, -10}, "20% lost"}}});
  EXPECT_THAT(svg, AllOf(HasSubstr("loss: 30 %"), HasSubstr("gain: -10 %"), HasSubstr(">20% lost<")));
}

TEST(StackedBars, LongNamesAreCutBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 41; ++i) name += "一";  // three bytes each
  const std::string svg = DrawStackedBars({.parts = {{"loss", "#f00"}}, .rows = {{name, {1}, ""}}});
  EXPECT_THAT(svg, AllOf(HasSubstr("一…"), Not(HasSubstr("\\x"))));
}

}  // namespace
}  // namespace hadal
