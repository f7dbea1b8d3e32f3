#include "tools/drawing/text_plot.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TextPlotOptions Small() { return {.columns = 10, .rows = 4, .x_label = "step"}; }

TEST(TextPlot, DrawsAFallingCurve) {
  const Curve curve = {"loss", {{0, 4}, {3, 3}, {6, 2}, {9, 1}}};
  EXPECT_EQ(PlotCurves({curve}, Small()),
            "4.00 ┤━━┓\n"
            "3.00 ┤  ┗━━┓\n"
            "2.00 ┤     ┗━━┓\n"
            "1.00 ┤        ┗━\n"
            "     └──────────\n"
            "      0  step  9\n"
            "      ━━ loss 1.000\n");
}

TEST(TextPlot, TheFirstCurveLiesOnTopOfTheSecond) {
  const Curve falls = {"a", {{0, 4}, {9, 1}}};
  const Curve flat = {"b", {{0, 4}, {9, 4}}};
  const std::string plot = PlotCurves({falls, flat}, Small());
  EXPECT_THAT(plot, HasSubstr("4.00 ┤━━┓───────\n"));
  EXPECT_THAT(plot, HasSubstr("━━ a 1.000   ── b 4.000"));
}

TEST(TextPlot, LeavesOutWhatIsNotFiniteAndSaysSo) {
  const Curve curve = {"run", {{0, 4}, {9, 1}, {10, NAN}, {11, INFINITY}}};
  const std::string plot = PlotCurves({curve}, Small());
  EXPECT_THAT(plot, HasSubstr("run 1.000 (2 points not finite)"));
  EXPECT_THAT(plot, Not(HasSubstr("nan")));
  EXPECT_EQ(PlotCurves({Curve{"run", {{0, NAN}}}}, Small()), "nothing to plot: no finite value yet\n");
  EXPECT_EQ(PlotCurves({}, Small()), "nothing to plot: no finite value yet\n");
}

TEST(TextPlot, ADivergingCurveDoesNotFlattenTheOthers) {
  const Curve falls = {"a", {{0, 4}, {9, 1}}};
  const Curve diverges = {"b", {{0, 4}, {9, 1e6}}};
  EXPECT_THAT(PlotCurves({falls, diverges}, Small()), HasSubstr("5.00 ┤"));
  EXPECT_THAT(PlotCurves({diverges}, Small()), HasSubstr("1.00e+06 ┤"));
}

TEST(TextPlot, OnePointAndAConstantHaveAFrame) {
  EXPECT_THAT(PlotCurves({Curve{"c", {{5, 2}}}}, Small()), HasSubstr("━━ c 2.000"));
  EXPECT_THAT(PlotCurves({Curve{"c", {{0, 0}, {1, 0}}}}, Small()), HasSubstr("━━ c 0"));
}

TEST(TextPlot, AsciiHoldsAsciiOnly) {
  TextPlotOptions options = Small();
  options.unicode = false;
  const std::string plot = PlotCurves({Curve{"a", {{0, 4}, {9, 1}}}, Curve{"b", {{0, 1}, {9, 4}}}}, options);
  for (const char c : plot) EXPECT_EQ(c & 0x80, 0);
  EXPECT_THAT(plot, HasSubstr("** a 1.000   oo b 4.000"));
}

}  // namespace
}  // namespace hadal
