#include "tools/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/output/trace_writer.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RecordedRun TwoRanks() {
  const StageTimes times{.forward_seconds = 0.6, .backward_seconds = 1.0, .wait_seconds = 0.25};
  return {.stages = {times, times}};
}

RunTrace TraceOfTwoRanks() {
  RunTrace trace{.first_step = 3, .last_step = 3, .ranks = {{.host = "a"}, {.host = "a"}}};
  for (int rank = 0; rank < 2; ++rank) {
    const double at = 50 + 0.5 * rank;
    trace.ranks[rank].events = {
        {.kind = TraceKind::kForward, .micro_batch = 0, .step = 3, .begin_seconds = at, .end_seconds = at + 0.5},
        {.kind = TraceKind::kRecompute,
         .micro_batch = 0,
         .step = 3,
         .begin_seconds = at + 1.1,
         .end_seconds = at + 1.3},
        {.kind = TraceKind::kBackward, .micro_batch = 0, .step = 3, .begin_seconds = at + 1, .end_seconds = at + 2},
        {.kind = TraceKind::kStep, .step = 3, .begin_seconds = 50, .end_seconds = 53}};
  }
  return trace;
}

TEST(Report, OneRunOnOnePageThatLoadsNothing) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", TwoRanks());
  ASSERT_TRUE(WriteTraceJson(TraceOfTwoRanks(), directory / "one").ok());
  const auto report = MakeReport({directory / "one"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->scaling.has_value());
  const std::string html = ReportToHtml(*report);
  EXPECT_THAT(html, AllOf(HasSubstr("<h2>Curves</h2>"), HasSubstr("Where each stage&#39;s step goes"),
                          HasSubstr("Memory of one"), HasSubstr("Step 3, traced"), HasSubstr("one: validation")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("src=")), Not(HasSubstr("href=")),
                          Not(HasSubstr("@import")), Not(HasSubstr("nan")), Not(HasSubstr("inf\""))));
}

// A quarter of the compute waits for a core.
TEST(Report, ThePagesTablesAndBarsHoldTheRunsNumbers) {
  const TemporaryDirectory directory;
  const StageTimes times{.forward_seconds = 0.6,
                         .recompute_seconds = 0.2,
                         .backward_seconds = 1.0,
                         .wait_seconds = 0.125,
                         .communication_seconds = 0.0625,
                         .optimizer_seconds = 0.2,
                         .checkpoint_seconds = 0.05,
                         .core_wait_seconds = 0.5};
  WriteRecordedRun(directory / "one", {.stages = {times, times}, .other_seconds = 0.1});
  const auto report = MakeReport({directory / "one"});
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string html = ReportToHtml(*report);
  for (const char* bar :
       {"forward: 450 ms", "recompute: 150 ms", "backward: 750 ms", "optimizer: 150 ms", "waiting for a core: 500 ms",
        "checkpoint: 50 ms", "wait: 125 ms", "communication: 62.5 ms", "unexplained: 100 ms"}) {
    EXPECT_THAT(html, HasSubstr(absl::StrCat("<title>", bar, "</title>")));
  }
  for (const char* cells :
       {"<td>one</td><td>2 × 1</td><td>6</td><td>6.000</td><td>6.200 (step 6)</td><td>BLEU 12.5 (step 6)</td>"
        "<td>2337.5 ms</td><td>",
        "<td>10.0 ms per step</td><td>all steps done</td></tr>", "<td>0</td><td>300.0 MiB</td><td>320.0 MiB</td><td>",
        "<td>1</td><td>300.0 MiB</td><td>320.0 MiB</td><td>", "</td><td>350.0 MiB</td><td>"}) {
    EXPECT_THAT(html, HasSubstr(cells));
  }
  EXPECT_THAT(html, HasSubstr("a model, 12,345 parameters"));
}

TEST(Report, IsWrittenUnderTheNameThatWasAskedFor) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", TwoRanks());
  const auto written = WriteReport({directory / "one"}, directory / "x.html");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, absl::StrCat(directory / "x.html\n", directory / "x.json\n", directory / "x.md\n"));
  EXPECT_THAT(Contents(directory / "x.html"), HasSubstr("<h2>Curves</h2>"));
  const absl::Status missing = WriteReport({directory / "one"}, directory / "missing/x").status();
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("cannot create " + (directory / "missing/x.html") + ": there is no directory"));
}

// A page that a browser opens at once, of a run of any length; what is left out is counted.
TEST(Report, ALongRunsPageStaysSmall) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int step = 0; step < 20'000; ++step) {
    absl::StrAppendFormat(&lines,
                          R"({"event":"step","step":%d,"loss":%.6f,"learning_rate":%.6f,"tokens_per_second":%d})"
                          "\n",
                          step, 5 + std::sin(step), 1e-4 * step, 1000 + step % 77);
    absl::StrAppendFormat(&lines,
                          R"({"event":"warning","step":%d,"text":"the update was skipped"})"
                          "\n",
                          step);
    if (step % 10 == 9)
      absl::StrAppendFormat(&lines,
                            R"({"event":"validation","step":%d,"nll":%.6f})"
                            "\n",
                            step + 1, 5 + std::cos(step));
  }
  SetContents(directory / "metrics.jsonl", lines);
  const auto report = MakeReport({directory.path()});
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string html = ReportToHtml(*report);
  EXPECT_LT(html.size(), 400'000u);
  EXPECT_THAT(html, AllOf(HasSubstr("step 19: the update"), HasSubstr("19960 more warnings"),
                          HasSubstr("step 19980: the update"), HasSubstr("step 19999: the update"),
                          Not(HasSubstr("step 20: the update")), Not(HasSubstr("step 19979: the update"))));
}

TEST(Report, RunsOfOneNameAreNamedByTheirDirectories) {
  const TemporaryDirectory directory;
  const std::vector<std::string> runs = {directory / "a/run", directory / "b/run", directory / "other"};
  for (const std::string& run : runs) WriteRecordedRun(run, TwoRanks());
  const auto report = MakeReport(runs);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->runs[0].name, runs[0]);
  EXPECT_EQ(report->runs[1].name, runs[1]);
  EXPECT_EQ(report->runs[2].name, "other");
}

TEST(Report, DepthIsDrawnAsHeatMapsAndCurves) {
  const TemporaryDirectory directory;
  RecordedRun run = TwoRanks();
  WriteRecordedRun(directory / "without", run);
  run.depth = true;
  WriteRecordedRun(directory / "with", run);
  const auto report = MakeReport({directory / "with"});
  ASSERT_TRUE(report.ok()) << report.status();
  const DepthMetrics& read = report->runs[0].depth.at(3);
  EXPECT_EQ(report->runs[0].encoder_sublayers, 2);
  EXPECT_EQ(read.model_update, 1.5);
  EXPECT_THAT(read[DepthSeries::kUpdateRatio], ElementsAre(0.04f, 0.08f, 0.12f, 0.16f, 0.2f));
  EXPECT_TRUE(std::isnan(read[DepthSeries::kActive][0]));
  EXPECT_TRUE(std::isinf(read[DepthSeries::kOutputGradient][1]));
  const std::string html = ReportToHtml(*report);
  for (const DepthSeriesInfo& series : kDepthSeries) EXPECT_THAT(html, HasSubstr(series.title));
  EXPECT_THAT(html, AllOf(HasSubstr("<h2>Depth</h2>"), HasSubstr("Change of the model since its first weights"),
                          Not(HasSubstr("<script")), Not(HasSubstr("nan")), Not(HasSubstr("inf\""))));
  EXPECT_THAT(ReportToHtml(*MakeReport({directory / "without"})), Not(HasSubstr("<h2>Depth</h2>")));
}

TEST(Report, SeveralRunsHaveTheSameScalingInAllThreeForms) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", {.stages = {{.forward_seconds = 1.2, .backward_seconds = 2.0}}});
  WriteRecordedRun(directory / "two", TwoRanks());
  const auto report = MakeReport({directory / "one", directory / "two"});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->scaling.has_value());
  const auto json = nlohmann::json::parse(ReportToJson(*report));
  const auto& row = json["scaling"]["rows"][1];
  double causes = 0;
  for (const auto& [name, share] : row["causes"].items()) causes += share.get<double>();
  EXPECT_NEAR(causes, row["lost_share"].get<double>(), 1e-9);
  EXPECT_EQ(json["scaling"]["kind"], "strong");
  const std::string efficiency = absl::StrFormat("%.1f%%", 100 * row["efficiency"].get<double>());
  EXPECT_THAT(ReportToMarkdown(*report), AllOf(HasSubstr("## Scaling (strong)"), HasSubstr(efficiency)));
  EXPECT_THAT(ReportToMarkdown(*report), HasSubstr("| 1.73x | 86.5% | 13.5% |"));
  EXPECT_THAT(ReportToHtml(*report), AllOf(HasSubstr("Scaling efficiency (strong)"), HasSubstr(efficiency),
                                           HasSubstr("<td>1.73×</td><td>86.5%</td><td>13.5%</td>")));
}

TEST(Report, TheNumbersOfARunInTheirUnits) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", {.stages = {{.forward_seconds = 1.25, .backward_seconds = 2.0}}});
  WriteRecordedRun(directory / "two", TwoRanks());
  auto report = MakeReport({directory / "one", directory / "two"});
  ASSERT_TRUE(report.ok()) << report.status();
  report->predictions = {{.measured_seconds = 3.25, .utilisation = 0.5, .roofline_share = 0.25},
                         {.predicted_bytes = int64_t{300} << 20, .measured_seconds = 1.85}};
  report->predictions[0].layout.step_seconds = 2.6;
  const std::string text = ReportToMarkdown(*report);
  EXPECT_THAT(text,
              HasSubstr("| one | 1 x 1 | 6 | 6.000 | 6.200 (step 6) | BLEU 12.5 (step 6) | 3250.0 ms | 308 | - |"));
  EXPECT_THAT(
      text,
      HasSubstr("| two | 2 x 1 | 6 | 6.000 | 6.200 (step 6) | BLEU 12.5 (step 6) | 1850.0 ms | 541 | 0 (+0.0%) |"));
  EXPECT_THAT(text, HasSubstr("| one | 2600.0 ms | 3250.0 ms | -20.0% | - | - | 50.0% | 25.0% |"));
  EXPECT_THAT(text, HasSubstr("| 300.0 MiB | - |"));
  const std::string html = ReportToHtml(*report);
  EXPECT_THAT(html, HasSubstr("<td>one</td><td>2600.0 ms</td><td>3250.0 ms</td><td>-20.0%</td><td>-</td><td>-</td>"
                              "<td>50.0%</td><td>25.0%</td></tr>"));
  EXPECT_THAT(html, HasSubstr("<td>300.0 MiB</td><td>-</td>"));
  const auto json = nlohmann::json::parse(ReportToJson(*report))["runs"][1];
  EXPECT_EQ(json["steps"], 6);
  EXPECT_EQ(json["loss"], 6.5);
  EXPECT_EQ(json["validation_nll"], 6.2);
  EXPECT_EQ(json["bleu"], 12.5);
  EXPECT_EQ(json["stages"][1]["held_bytes"], int64_t{320} << 20);
  EXPECT_GT(json["stages"][1]["predicted_bytes"], json["stages"][1]["arena_bytes"]) << "the process has memory too";
}

// Programs of other people read these names. The values are distinct, so that a mix-up shows.
TEST(Report, EveryNumberOfTheJsonHasItsName) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", {.stages = {{.forward_seconds = 1.25, .backward_seconds = 2.0}}});
  auto report = MakeReport({directory / "one"});
  ASSERT_TRUE(report.ok()) << report.status();
  RunSummary& summary = report->summaries[0];
  summary.stages = {{.forward_seconds = 1,
                     .recompute_seconds = 2,
                     .backward_seconds = 3,
                     .wait_seconds = 4,
                     .communication_seconds = 5,
                     .optimizer_seconds = 6,
                     .checkpoint_seconds = 7,
                     .core_wait_seconds = 8}};
  summary.beyond_costs = {9};
  summary.memory = {{.arena_bytes = 10, .held_bytes = 11, .peak_resident_bytes = 12}};
  report->predictions = {{.costs = "costs",
                          .predicted_bytes = 13,
                          .measured_bytes = 14,
                          .measured_seconds = 4,
                          .utilisation = 0.25,
                          .roofline_share = 0.125}};
  report->predictions[0].layout.step_seconds = 6;
  auto json = nlohmann::json::parse(ReportToJson(*report))["runs"][0];
  EXPECT_EQ(json["nll"], 6.0);
  EXPECT_NEAR(json["target_tokens"].get<double>(), 1000, 1e-9);
  EXPECT_NEAR(json["step_seconds"].get<double>(), 3.25, 1e-9);
  EXPECT_NEAR(json["outside_seconds"].get<double>(), 0.01, 1e-9);
  EXPECT_NEAR(json["target_tokens_per_second"].get<double>(), 1000 / 3.25, 1e-9);
  json["stages"][0].erase("predicted_bytes");
  EXPECT_EQ(json["stages"], nlohmann::json::parse(R"([{"stage": 0, "forward_seconds": 1, "recompute_seconds": 2,
      "backward_seconds": 3, "wait_seconds": 4, "communication_seconds": 5, "optimizer_seconds": 6,
      "checkpoint_seconds": 7, "core_wait_seconds": 8, "compute_beyond_costs": 9, "arena_bytes": 10,
      "held_bytes": 11, "peak_resident_bytes": 12}])"));
  EXPECT_EQ(json["prediction"], nlohmann::json::parse(R"({"costs": "costs", "predicted_step_seconds": 6,
      "measured_step_seconds": 4, "step_error": 0.5, "predicted_bytes": 13, "measured_bytes": 14,
      "utilisation": 0.25, "roofline_share": 0.125})"));
}

TEST(Report, ScoresSpeechByItsWordErrorRate) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", {.frame_width = 80, .stages = {{.forward_seconds = 1.25}}});
  auto report = MakeReport({directory / "one"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(ReportToMarkdown(*report), HasSubstr("| WER 10.7% (step 6) |"));
  EXPECT_THAT(ReportToHtml(*report), HasSubstr("Word error rate of the validation"));
  EXPECT_EQ(nlohmann::json::parse(ReportToJson(*report))["runs"][0]["wer"], 0.107);
}

// A run's directory can have any name.
TEST(Report, NamesAreTextInAllThreeForms) {
  const TemporaryDirectory directory;
  const std::string run = directory / "a|<b>\x1b[31m\xff";
  WriteRecordedRun(run, TwoRanks());
  const auto report = MakeReport({run});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(ReportToMarkdown(*report),
              AllOf(HasSubstr("| a\\|&lt;b&gt;\\x1b\\[31m\\xff |"), Not(HasSubstr("\x1b")), Not(HasSubstr("\xff"))));
  EXPECT_THAT(ReportToHtml(*report), AllOf(HasSubstr("<td>a|&lt;b&gt;\\x1b[31m\\xff</td>"), Not(HasSubstr("<b>")),
                                           Not(HasSubstr("\x1b")), Not(HasSubstr("\xff"))));
  EXPECT_TRUE(nlohmann::json::accept(ReportToJson(*report)));
}

// Two runs of one quantity are compared by colour.
TEST(Report, MapsOfOneQuantityHaveOneScale) {
  const TemporaryDirectory directory;
  RecordedRun run = TwoRanks();
  run.depth = true;
  WriteRecordedRun(directory / "short", run);
  run.steps = 60;
  WriteRecordedRun(directory / "long", run);
  const auto report = MakeReport({directory / "short", directory / "long"});
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string html = ReportToHtml(*report);
  const size_t begin = html.find("<h3>Size of the update</h3>"), end = html.find("<h3>", begin + 1);
  ASSERT_NE(begin, std::string::npos);
  const std::string maps = html.substr(begin, end - begin);
  const size_t first = maps.find(">3.00<");  // 0.01 × 5 sublayers × 60 steps
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(maps.find(">3.00<", first + 1), std::string::npos);
}

TEST(Report, TheConfigAndTheTranslationsAreInIt) {
  const TemporaryDirectory directory;
  RecordedRun run = TwoRanks();
  run.config = "model { d_ff: 96 }";
  WriteRecordedRun(directory / "one", run);
  SetContents(directory / "one/metrics.jsonl", Contents(directory / "one/metrics.jsonl") +
                                                   R"({"event":"sample","step":6,"text":"source: a <b>\nours: x"})"
                                                   "\n");
  const auto report = MakeReport({directory / "one"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(ReportToHtml(*report), AllOf(HasSubstr("<td>model.d_ff</td><td>96</td>"),
                                           HasSubstr("<pre>step 6\nsource: a &lt;b&gt;\nours: x</pre>")));
  EXPECT_THAT(ReportToMarkdown(*report), HasSubstr("## Config\n\n| field | one |\n"));
  EXPECT_THAT(ReportToMarkdown(*report), HasSubstr("| model.d_ff | 96 |\n"));
}

TEST(Report, RunsOfDifferentModelsStandSideBySideWithoutScaling) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", TwoRanks());
  WriteRecordedRun(directory / "two", TwoRanks());
  const std::string path = directory / "two/metrics.jsonl";
  std::string text = Contents(path);
  text.replace(text.find("a model"), 7, "<b>other");
  SetContents(path, text);
  const auto report = MakeReport({directory / "one", directory / "two"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->no_scaling, HasSubstr("<b>other"));
  EXPECT_THAT(ReportToHtml(*report), AllOf(HasSubstr("Not compared"), Not(HasSubstr("<b>other"))));
}

}  // namespace
}  // namespace hadal
