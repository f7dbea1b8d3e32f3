#include "tools/compare/comparison_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/files.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/compare/comparison_charts.h"
#include "tools/compare/comparison_instruments.h"
#include "tools/drawing/line_chart.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

GridCell Cell(const std::vector<GridAxis>& axes, std::vector<int> place) {
  GridCell cell{.place = std::move(place)};
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    absl::StrAppend(&cell.name, axis == 0 ? "" : ",", axes[axis].name, "=", axes[axis].labels[cell.place[axis]]);
  }
  return cell;
}

// methods a, b × depths 6, 18, of which b at 18 is not in the grid; recorded runs validate once, at 6.2.
class ComparisonReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grid_.settings.set_title("Which <methods> train");
    grid_.axes = {{"method", {"a", "b"}}, {"depth", {"6", "18"}}};
    for (const std::vector<int>& place : {std::vector<int>{0, 0}, {1, 0}, {0, 1}}) {
      grid_.cells.push_back(Cell(grid_.axes, place));
    }
  }

  std::string Directory(int cell) const { return directory_ / absl::StrCat("runs/", grid_.cells[cell].name); }
  void Record(int cell, const CellRun& run) {
    WriteRecordedRun(Directory(cell), {.stages = {{.forward_seconds = 0.5}}, .depth = true});
    EXPECT_TRUE(WriteCellRun(Directory(cell), run).ok());
  }
  void Translate(int cell, const std::string& text) { SetContents(JoinPath(Directory(cell), kTranslationFile), text); }
  ComparisonReport Make(const std::string& reference = "") {
    absl::StatusOr<ComparisonReport> report = MakeComparisonReport(grid_, directory_.path(), reference);
    EXPECT_TRUE(report.ok()) << report.status();
    return *std::move(report);
  }

  TemporaryDirectory directory_;
  ComparisonGrid grid_;
};

TEST_F(ComparisonReportTest, TheTableHasMethodsAsRowsAndDepthsAsColumns) {
  Record(0, {.end = CellEnd::kDone, .wall_seconds = 3600, .cpu_seconds = 1800, .unigram_nll = 7});
  Record(1, {.end = CellEnd::kDiverged, .unigram_nll = 7});
  EXPECT_THAT(
      ComparisonToMarkdown(Make()),
      AllOf(HasSubstr("# Which &lt;methods&gt; train\n"), HasSubstr("(7.000 on these sentences)"),
            HasSubstr("| method \\ depth | 6 | 18 |\n|---|---:|---:|\n| a | 6.200 | not run |\n| b | diverged |  |\n"),
            HasSubstr("| method=a,depth=6 | done | 6 | 6.500 | 6.200 | 6 | 0.800 | trains | – | – | 1.71k | 1.000 | "
                      "0.500 |")));
}

TEST_F(ComparisonReportTest, FurtherAxesHaveTablesOfTheirOwn) {
  grid_.axes.push_back({"warmup", {"none", "40"}});
  grid_.cells = {Cell(grid_.axes, {0, 0, 1}), Cell(grid_.axes, {1, 1, 0}), Cell(grid_.axes, {0, 0, 0})};
  const ComparisonReport report = Make();
  const std::vector<ComparisonPanel> panels = Panels(report);
  ASSERT_EQ(panels.size(), 2u);
  EXPECT_EQ(panels[0].name, "warmup=none");
  EXPECT_EQ(panels[1].name, "warmup=40");
  EXPECT_EQ(panels[0].cells[0][0]->name, "method=a,depth=6,warmup=none");
  EXPECT_EQ(panels[0].cells[1][1]->name, "method=b,depth=18,warmup=none");
  EXPECT_EQ(panels[0].cells[0][1], nullptr);
  EXPECT_EQ(panels[1].cells[0][0]->name, "method=a,depth=6,warmup=40");
}

TEST_F(ComparisonReportTest, OneAxisIsOneColumn) {
  grid_.axes.pop_back();
  grid_.cells = {Cell(grid_.axes, {1})};
  EXPECT_THAT(ComparisonToMarkdown(Make()), HasSubstr("| method | result |\n|---|---:|\n| a |  |\n| b | not run |\n"));
}

TEST_F(ComparisonReportTest, ReadsTheInstruments) {
  Record(0, {.end = CellEnd::kDone});
  const CellInstruments instruments = Make().cells[0].instruments;
  EXPECT_EQ(instruments.model_update, 2.5);  // 0.5 × the last step, 5
  EXPECT_EQ(instruments.early_model_update, 2.5);
  EXPECT_NEAR(*instruments.gradient_ratio_decoder, 3.0 / 5, 1e-6);
  EXPECT_FALSE(instruments.gradient_ratio_encoder.has_value());  // it was infinite behind the encoder
  EXPECT_NEAR(*instruments.norm_gradient_ratio, 1, 1e-6);
  EXPECT_NEAR(*instruments.similarity, 0.01 * 6 * 3, 1e-6);
  EXPECT_NEAR(*instruments.active, 0.01 * 6 * 3.5, 1e-6);  // attention has none
}

TEST_F(ComparisonReportTest, TheBestBleuOfAColumnIsComparedWithTheOthers) {
  for (const int cell : {0, 1, 2}) Record(cell, {.end = CellEnd::kDone, .unigram_nll = 7});
  std::string reference, poor;
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&reference, "there are ", i, " words in this line of the text\n");
    absl::StrAppend(&poor, "there are ", i, " words at this line of a text\n");
  }
  SetContents(directory_ / "reference", reference);
  Translate(0, poor);
  Translate(1, reference);
  Translate(2, poor);
  const ComparisonReport report = Make(directory_ / "reference");
  EXPECT_FALSE(report.cells[0].best_bleu);
  EXPECT_TRUE(report.cells[1].best_bleu);
  EXPECT_TRUE(report.cells[2].best_bleu);  // alone in its column
  EXPECT_LT(*report.cells[0].p_value, 0.05);
  EXPECT_FALSE(report.cells[1].p_value.has_value());
  EXPECT_THAT(ComparisonToMarkdown(report), HasSubstr("| b | **100.0** |  |"));
  EXPECT_THAT(ComparisonToHtml(report), AllOf(HasSubstr("<td class=\"good\"><b>100.0</b></td>"), HasSubstr("is bold")));
  EXPECT_THAT(CellText(&report.cells[0]), Not(HasSubstr("≈"))) << "it is worse, and not by chance";
  Translate(0, reference);
  EXPECT_EQ(CellText(&Make(directory_ / "reference").cells[1]), "100.0 ≈");
  Translate(0, "one line\n");
  EXPECT_THAT(MakeComparisonReport(grid_, directory_.path(), directory_ / "reference").status().message(),
              AllOf(HasSubstr("has 1 lines"), HasSubstr("has 60")));
}

TEST_F(ComparisonReportTest, TheJsonHasTheNumbers) {
  Record(0, {.end = CellEnd::kDone, .wall_seconds = 3600, .cpu_seconds = 1800, .unigram_nll = 7});
  const nlohmann::json json = nlohmann::json::parse(ComparisonToJson(Make()));
  EXPECT_EQ(json["rule"]["trains_below_unigram"], 0.3);
  ASSERT_EQ(json["cells"].size(), 3u);
  const nlohmann::json& cell = json["cells"][0];
  EXPECT_EQ(cell["labels"]["depth"], "6");
  EXPECT_EQ(cell["verdict"], "trains");
  EXPECT_EQ(cell["validation_nll"], nlohmann::json::parse("[[6, 6.2]]"));
  EXPECT_EQ(cell["instruments"]["model_update"], 2.5);
  for (const auto& [key, value] : {std::pair("wall_hours", 1.0),
                                   {"cpu_hours", 0.5},
                                   {"parameters", 12345},
                                   {"steps", 6},
                                   {"best_validation_nll", 6.2},
                                   {"best_step", 6},
                                   {"unigram_nll", 7},
                                   {"below_unigram", 0.8}}) {
    EXPECT_NEAR(cell.value(key, 0.0), value, 1e-9) << key;
  }
  EXPECT_EQ(json["cells"][2]["state"], "none");
  EXPECT_FALSE(json["cells"][2].contains("verdict"));
}

TEST_F(ComparisonReportTest, ThePageIsOneFileWithItsDrawings) {
  Record(0, {.end = CellEnd::kDone, .unigram_nll = 7});
  Record(1, {.end = CellEnd::kDone, .unigram_nll = 6});
  const std::string page = ComparisonToHtml(Make());
  EXPECT_THAT(page, AllOf(HasSubstr("<h1>Which &lt;methods&gt; train</h1>"), HasSubstr("<td class=\"good\">6.200</td>"),
                          HasSubstr("<td class=\"fair\">6.200 too short</td>"), HasSubstr("<h3>depth 6</h3>"),
                          HasSubstr("Change of the model, ‖ΔF‖"), HasSubstr("Similarity to the previous sublayer")));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<link")), Not(HasSubstr("src=")),
                          Not(HasSubstr("<h3>depth 18</h3>")), Not(HasSubstr("nan"))));
}

TEST_F(ComparisonReportTest, ALossThatExplodesLeavesTheChartToTheOthers) {
  for (const int cell : {0, 1}) Record(cell, {.end = CellEnd::kDone, .unigram_nll = 7});
  ComparisonReport report = Make();
  report.cells[1].record.steps[3].nll = 1e6;
  const std::string curves = CurvesMarkup(report, Panels(report)[0]);
  EXPECT_THAT(curves, AllOf(HasSubstr(">b (leaves the chart)<"), HasSubstr(">a<"), Not(HasSubstr("1000000")),
                            Not(HasSubstr("1e+06")), Not(HasSubstr("not finite"))));
}

TEST_F(ComparisonReportTest, ALossThatStartsHighAndFallsHasALine) {
  for (const int cell : {0, 1}) Record(cell, {.end = CellEnd::kDone, .unigram_nll = 7});
  ComparisonReport report = Make();
  const auto lines = [&] {
    const std::string curves = CurvesMarkup(report, Panels(report)[0]);
    size_t count = 0;
    for (size_t at = curves.find("<polyline"); at != std::string::npos; at = curves.find("<polyline", at + 1)) ++count;
    return count;
  };
  for (const int cell : {0, 1}) report.cells[cell].record.validations.push_back({.step = 7, .nll = 6});
  const size_t before = lines();
  report.cells[1].record.validations.push_back({.step = 8, .nll = 5});
  report.cells[1].record.validations.front().nll = INFINITY;
  EXPECT_EQ(lines(), before);
}

TEST_F(ComparisonReportTest, ANormsRatioIsDrawnAsThatBeforeItOverThatAfterIt) {
  Record(0, {.end = CellEnd::kDone});
  ComparisonReport report = Make();
  DepthMetrics& first = report.cells[0].record.depth.at(0);
  first[DepthSeries::kNormInputGradient] = {1.0f, 1.0f};
  first[DepthSeries::kNormOutputGradient] = {10.0f, 100.0f};
  ChartSeries expected{.name = "a", .colour = kSeriesColours[0]};
  for (const float after : {10.0f, 100.0f}) {
    expected.points.emplace_back(static_cast<double>(expected.points.size()), std::log10(1.0f / after));
  }
  EXPECT_THAT(InstrumentsMarkup(report, Panels(report)[0]),
              HasSubstr(DrawLineChart({.title = "Gradient before / after each norm",
                                       .x_label = "sublayer, encoder then decoder",
                                       .y_label = "log10, first step",
                                       .series = {expected}})));
}

TEST_F(ComparisonReportTest, NothingHasRunYet) {
  EXPECT_THAT(ComparisonToMarkdown(Make()), HasSubstr("| a | not run | not run |"));
  EXPECT_THAT(ComparisonToHtml(Make()), Not(HasSubstr("<svg")));
}

TEST(ReadInstruments, ANormsGradientIsThatBeforeItOverThatAfterIt) {
  RunRecord run;
  DepthMetrics& record = run.depth.emplace_back();
  record[DepthSeries::kNormInputGradient] = {1.0f, 2.0f};
  record[DepthSeries::kNormOutputGradient] = {2.0f, 4.0f};
  EXPECT_NEAR(*ReadInstruments(run).norm_gradient_ratio, 0.5, 1e-6);
}

TEST(ReadInstruments, AStacksGradientIsThatOfItsFirstSublayerOverThatOfItsLast) {
  RunRecord run;
  run.encoder_sublayers = 2;
  run.depth.emplace_back()[DepthSeries::kOutputGradient] = {1.0f, 4.0f, 8.0f, 2.0f};
  EXPECT_EQ(ReadInstruments(run).gradient_ratio_encoder, 0.25);
  EXPECT_EQ(ReadInstruments(run).gradient_ratio_decoder, 4);
}

TEST(ReadInstruments, TheEarlyUpdateIsTheLastOfTheFirstTen) {
  RunRecord run;
  run.depth = {{.update = 10, .model_update = 0.5}, {.update = 11, .model_update = 1.5}};
  EXPECT_EQ(ReadInstruments(run).early_model_update, 0.5);
  EXPECT_EQ(ReadInstruments(run).model_update, 1.5);
}

TEST(MeanPoints, AveragesNeighbours) {
  EXPECT_THAT(MeanPoints({{0, 1}, {1, 3}, {2, 10}, {3, 20}}, 2),
              ElementsAre(std::pair(0.5, 2.0), std::pair(2.5, 15.0)));
  EXPECT_THAT(MeanPoints({{0, 1}, {1, 3}}, 2), ElementsAre(std::pair(0.0, 1.0), std::pair(1.0, 3.0)));
}

}  // namespace
}  // namespace hadal
