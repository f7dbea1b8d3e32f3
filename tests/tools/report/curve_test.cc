#include "tools/report/curve.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "runtime/files.h"
#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"
#include "tools/drawing/text_plot.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class CurveTest : public ::testing::Test {
 protected:
  CurveTest() { std::filesystem::create_directories(run_); }
  void Write(const std::string& text) { std::ofstream(run_ + "/metrics.jsonl") << text; }
  const TemporaryDirectory directory_;
  const std::string run_ = directory_ / "deep";
};

constexpr char kRun[] =
    "{\"event\":\"run\",\"first_step\":1}\n"
    "{\"event\":\"step\",\"step\":0,\"loss\":4.5}\n"
    "{\"event\":\"step\",\"step\":1,\"loss\":null}\n"
    "{\"event\":\"validation\",\"step\":2,\"nll\":3.5}\n"
    "{\"event\":\"step\",\"step\":2,\"loss\":2.5}\n"
    "{\"event\":\"step\",\"step\":3,\"lo";

TEST_F(CurveTest, ReadsStepsAndValidations) {
  Write(kRun);
  const auto loss = ReadCurve(run_, "loss", "deep").value();
  ASSERT_EQ(loss.points.size(), 3u);
  EXPECT_EQ(loss.points[0], std::pair(0.0, 4.5));
  EXPECT_TRUE(std::isnan(loss.points[1].second));
  EXPECT_EQ(loss.points[2], std::pair(2.0, 2.5));
  const auto valid = ReadCurve(run_ + "/metrics.jsonl", "valid/nll", "deep").value();
  EXPECT_THAT(valid.points, ElementsAre(Pair(2.0, 3.5)));
}

TEST_F(CurveTest, AnUnknownMetricGetsTheListOfThoseThatExist) {
  Write(kRun);
  const auto curve = ReadCurve(run_, "los", "deep");
  EXPECT_THAT(std::string(curve.status().message()), HasSubstr("no line has 'los'; available: loss, valid/nll"));
}

TEST_F(CurveTest, BadFilesGetAnErrorWithTheirName) {
  EXPECT_TRUE(absl::IsNotFound(ReadCurve("/nonexistent", "loss", "x").status()));
  Write("{\"event\":\"run\"}\nnonsense\n");
  EXPECT_THAT(std::string(ReadCurve(run_, "loss", "x").status().message()),
              HasSubstr("metrics.jsonl:2: not a JSON object"));
  Write("{\"event\":\"step\",\"step\":null,\"loss\":1}\n");
  EXPECT_THAT(std::string(ReadCurve(run_, "loss", "x").status().message()), HasSubstr("metrics.jsonl:1: "));
  Write("");
  EXPECT_THAT(std::string(ReadCurve(run_, "loss", "x").status().message()), HasSubstr("has no step yet"));
}

TEST_F(CurveTest, PlotsUnderTheDirectorysName) {
  Write(kRun);
  std::ostringstream out;
  ASSERT_TRUE(RunCurve({.runs = {run_ + "/"}, .metric = "loss", .plot = {.columns = 20, .rows = 4}}, out).ok());
  EXPECT_THAT(out.str(), HasSubstr("deep 2.500 (1 point not finite)"));
  EXPECT_THAT(out.str(), HasSubstr("4.50 ┤"));
  EXPECT_FALSE(RunCurve({.runs = {run_}, .labels = {"a", "b"}}, out).ok());
}

TEST_F(CurveTest, StoresTheExitCode) {
  EXPECT_EQ(RunCommand(AddCurveCommand, "curve /nonexistent").exit_code, 2);
  EXPECT_EQ(RunCommand(AddCurveCommand, "curve").exit_code, 2);
  EXPECT_EQ(RunCommand(AddCurveCommand, absl::StrCat("curve ", run_, " --svg x --depth nonsense")).exit_code, 2);
  EXPECT_EQ(RunCommand(AddCurveCommand, absl::StrCat("curve ", run_, " --dark")).exit_code, 2);
}

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
