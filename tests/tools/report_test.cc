#include "tools/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/trace_json.h"
#include "tools/trace_timeline.h"

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
                          HasSubstr("Memory of one"), HasSubstr("Step 3, traced"), HasSubstr("validation nll")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("src=")), Not(HasSubstr("href=")),
                          Not(HasSubstr("@import")), Not(HasSubstr("nan")), Not(HasSubstr("inf\""))));
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
  EXPECT_THAT(ReportToHtml(*report), AllOf(HasSubstr("Scaling efficiency (strong)"), HasSubstr(efficiency)));
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

TEST(TraceTimeline, CutsRecomputationOutOfItsBackward) {
  const auto traced = TimelineFromTrace(TraceToJson(TraceOfTwoRanks()));
  ASSERT_TRUE(traced.ok()) << traced.status();
  EXPECT_EQ(traced->step, 3);
  ASSERT_EQ(traced->timeline.spans.size(), 2u);
  const std::vector<TimelineSpan>& spans = traced->timeline.spans[1];
  ASSERT_EQ(spans.size(), 4u);  // forward, backward, recompute, backward
  EXPECT_EQ(spans[0].label, "F0");
  EXPECT_NEAR(spans[0].begin_seconds, 0.5, 1e-6);
  EXPECT_NEAR(spans[1].end_seconds, spans[2].begin_seconds, 1e-6);
  EXPECT_NEAR(spans[2].end_seconds, spans[3].begin_seconds, 1e-6);
  EXPECT_NEAR(spans[3].end_seconds, 2.5, 1e-6);
}

TEST(TraceTimeline, RefusesWhatIsNoTrace) {
  for (const char* wrong :
       {"", "[]", R"({"traceEvents":[{"ph":"X","cat":"step"}]})", R"({"traceEvents":[{"cat":7}]})"}) {
    EXPECT_EQ(TimelineFromTrace(wrong).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
  EXPECT_EQ(TimelineFromTrace("{\"traceEvents\":[]}").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hadal
