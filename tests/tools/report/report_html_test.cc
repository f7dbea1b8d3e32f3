// What the page says of numbers that a test has set (report_test.cc: pages of whole runs).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/drawing/line_chart.h"
#include "tools/output/trace_writer.h"
#include "tools/plan/plan_report.h"
#include "tools/report/report.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr StageTimes kHalf = {.forward_seconds = 0.6, .backward_seconds = 1.0, .wait_seconds = 0.25};

// Of a run of one rank and one of two, or of the second alone.
Report MakeReportOf(bool both) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory / "one", {.stages = {{.forward_seconds = 1.2, .backward_seconds = 2.0}}});
  WriteRecordedRun(directory / "two", {.stages = {kHalf, kHalf}});
  return both ? MakeReport({directory / "one", directory / "two"}).value() : MakeReport({directory / "two"}).value();
}

TEST(ReportHtml, WhereWaitingWentAndWhoIsSlowest) {
  Report report = MakeReportOf(/*both=*/false);
  RunSummary& summary = report.summaries[0];
  summary.parts->bubble = 0.011;
  summary.parts->imbalance = 0.022;
  summary.parts->exposed_transfers = 0.033;
  summary.slowest_stage = 1;
  summary.slowest_excess = 0.25;
  summary.beyond_costs = {0.5, -0.125};
  EXPECT_THAT(ReportToHtml(report),
              AllOf(HasSubstr("11.0 ms the schedule"), HasSubstr(" 22.0 ms imbalance"), HasSubstr(" 33.0 ms exposed"),
                    HasSubstr("Stage 1 computes longest, 25.0% above the mean."),
                    HasSubstr("stage 0 +50.0%, stage 1 -12.5%.")));
  summary.wait_is_split = false;
  report.runs[0].ranks = 1;
  EXPECT_THAT(ReportToHtml(report), AllOf(Not(HasSubstr("imbalance between")), Not(HasSubstr("computes longest"))));
}

// Clocks differ: the stages' parts may be longer than the step.
TEST(ReportHtml, TheUnexplainedIsNeverLessThanNothing) {
  Report report = MakeReportOf(/*both=*/false);
  report.summaries[0].step_seconds = 1;
  EXPECT_THAT(ReportToHtml(report), Not(HasSubstr("unexplained: -")));
}

TEST(ReportHtml, MemoryBesideWhatWasPlanned) {
  Report report = MakeReportOf(/*both=*/false);
  constexpr int64_t kMebibyte = int64_t{1} << 20, kArena = 200 * kMebibyte;
  const int64_t planned = kArena + MemoryAllowance::Bytes(1);
  report.summaries[0].memory = {{.arena_bytes = kArena, .peak_resident_bytes = planned / 2}};
  EXPECT_THAT(ReportToHtml(report),
              HasSubstr(absl::StrFormat("<td>0</td><td>200.0 MiB</td><td>-</td><td>%.1f MiB</td><td>%.1f MiB</td>"
                                        "<td>50.0%%</td>",
                                        static_cast<double>(planned) / kMebibyte,
                                        static_cast<double>(planned / 2) / kMebibyte)));
}

TEST(ReportHtml, ARunThatGoesOnAndItsWarnings) {
  Report report = MakeReportOf(/*both=*/false);
  RunRecord& run = report.runs[0];
  run.finish.clear();
  run.warnings.assign(40, {.step = 1, .text = "a warning"});
  EXPECT_THAT(ReportToHtml(report), AllOf(HasSubstr("<td>not yet</td>"), Not(HasSubstr("more warnings"))));
  run.warnings.push_back(run.warnings.front());
  EXPECT_THAT(ReportToHtml(report), HasSubstr("two: 1 more warnings"));
}

TEST(ReportHtml, HowWellATracesClocksAgree) {
  Report report = MakeReportOf(/*both=*/false);
  RunTrace trace{.first_step = 3, .last_step = 3, .ranks = {{.host = "a", .clock_error_seconds = 2.5e-6}}};
  trace.ranks[0].events = {
      {.kind = TraceKind::kForward, .micro_batch = 0, .step = 3, .begin_seconds = 50, .end_seconds = 51},
      {.kind = TraceKind::kStep, .step = 3, .begin_seconds = 50, .end_seconds = 53}};
  report.runs[0].trace_json = TraceToJson(trace);
  EXPECT_THAT(ReportToHtml(report), HasSubstr("Step 3, traced; clocks agree within 2.5 us."));
}

TEST(ReportHtml, WhyNothingIsPredicted) {
  Report report = MakeReportOf(/*both=*/false);
  report.no_predictions = "the costs are another model's";
  EXPECT_THAT(ReportToHtml(report), HasSubstr("No prediction: the costs are another"));
}

TEST(ReportHtml, EachRunHasItsColour) {
  const Report report = MakeReportOf(/*both=*/true);
  LineChart rate{.title = "Learning rate", .x_label = "step", .y_label = "factor of the update", .from_zero = true};
  LineChart nll{.title = "Loss", .x_label = "step", .y_label = "nll, nats per target token"};
  for (const bool second : {false, true}) {
    rate.series.push_back({.name = second ? "two" : "one", .colour = second ? "#d9822b" : "#3b7dd8"});
    for (int step = 0; step < 6; ++step) rate.series.back().points.emplace_back(step + 1, 1e-4 * step);
    nll.series.push_back({.name = rate.series.back().name, .colour = rate.series.back().colour});
    for (int step = 0; step < 6; ++step) nll.series.back().points.emplace_back(step + 1, 6.5 - 0.1 * step);
  }
  for (const size_t run : {0, 1}) {
    nll.series.push_back({.name = nll.series[run].name + ": validation",
                          .colour = nll.series[run].colour,
                          .points = {{6, 6.2}},
                          .dots = true});
  }
  EXPECT_THAT(ReportToHtml(report), AllOf(HasSubstr(DrawLineChart(rate)), HasSubstr(DrawLineChart(nll))));
}

// The loss with label smoothing is another quantity than a validation's nll.
TEST(ReportHtml, OnlyWhatIsSmoothedHasAChartOfTheSmoothedLoss) {
  Report report = MakeReportOf(/*both=*/false);
  LineChart smoothed{.title = "Loss with label smoothing",
                     .x_label = "step",
                     .y_label = "what is minimised, nats per target token",
                     .series = {{.name = "two", .colour = "#3b7dd8"}}};
  for (int step = 0; step < 6; ++step) smoothed.series[0].points.emplace_back(step + 1, 7.0 - 0.1 * step);
  EXPECT_THAT(ReportToHtml(report), HasSubstr(DrawLineChart(smoothed)));
  for (StepMetrics& step : report.runs[0].steps) step.loss = step.nll;
  EXPECT_THAT(ReportToHtml(report), Not(HasSubstr("label smoothing")));
}

TEST(ReportHtml, BleuHasAChartWhereItWasMeasured) {
  Report report = MakeReportOf(/*both=*/false);
  EXPECT_THAT(ReportToHtml(report), HasSubstr("BLEU of the validation"));
  report.runs[0].validations[0].bleu.reset();
  EXPECT_THAT(ReportToHtml(report), Not(HasSubstr("BLEU of the validation")));
}

TEST(ReportHtml, GradientNormsAreOnALogarithmicAxis) {
  Report report = MakeReportOf(/*both=*/false);
  LineChart norm{.title = "Gradient norm",
                 .x_label = "step",
                 .y_label = "2-norm of the loss gradient",
                 .series = {{.name = "two", .colour = "#3b7dd8"}},
                 .logarithmic = true};
  for (int step = 0; step < 6; ++step) {
    report.runs[0].steps[step].gradient_norm = std::pow(10, step);
    norm.series[0].points.emplace_back(step + 1, std::pow(10, step));
  }
  EXPECT_THAT(ReportToHtml(report), HasSubstr(DrawLineChart(norm)));
}

// Two ranks take 1.85 s where one took 3.2 s: 86.5% of what they could.
TEST(ReportHtml, ScalingAndItsCauses) {
  const Report report = MakeReportOf(/*both=*/true);
  const std::string html = ReportToHtml(report);
  EXPECT_THAT(html, HasSubstr("<td>two</td><td>2</td><td>1,000</td><td>1850.0 ms</td>"));
  EXPECT_THAT(html, HasSubstr("<td>1.73×</td><td>86.5%</td><td>13.5%</td><td>13.5%</td>"));
  EXPECT_THAT(html, HasSubstr("<title>bubble: 10.81 %</title>"));
  EXPECT_THAT(html, AllOf(HasSubstr("two: bubble costs 10.8%"), Not(HasSubstr("one: ."))));
  const std::vector<std::pair<double, double>> points = {{1, 100}, {2, 100 * report.scaling->rows[1].efficiency}};
  LineChart efficiency{.title = "Efficiency",
                       .x_label = "cores (ranks × threads)",
                       .y_label = "%",
                       .series = {{.name = "runs", .colour = "#3b7dd8", .points = points, .dots = true},
                                  {.name = "the best on so many cores", .colour = "#3b7dd8", .points = points},
                                  {.name = "ideal", .colour = "#bbbbbb", .points = {{1, 100}, {2, 100}}}},
                       .from_zero = true};
  EXPECT_THAT(html, HasSubstr(DrawLineChart(efficiency)));
}

// Two layouts on as many cores are two dots, and no line joins them.
TEST(ReportHtml, LayoutsOnAsManyCoresAreNotJoined) {
  const TemporaryDirectory directory;
  StageTimes slower = kHalf;
  slower.wait_seconds += 0.2;
  WriteRecordedRun(directory / "one", {.stages = {{.forward_seconds = 1.2, .backward_seconds = 2.0}}});
  WriteRecordedRun(directory / "slower", {.stages = {slower, slower}});
  WriteRecordedRun(directory / "two", {.stages = {kHalf, kHalf}});
  const Report report = MakeReport({directory / "one", directory / "slower", directory / "two"}).value();
  ASSERT_EQ(report.scaling->rows.size(), 3u);
  EXPECT_EQ(report.scaling->rows[1].run, 2u) << "the faster one first";
  const double best = 100 * report.scaling->rows[1].efficiency, second = 100 * report.scaling->rows[2].efficiency;
  LineChart efficiency{
      .title = "Efficiency",
      .x_label = "cores (ranks × threads)",
      .y_label = "%",
      .series = {{.name = "runs", .colour = "#3b7dd8", .points = {{1, 100}, {2, best}, {2, second}}, .dots = true},
                 {.name = "the best on so many cores", .colour = "#3b7dd8", .points = {{1, 100}, {2, best}}},
                 {.name = "ideal", .colour = "#bbbbbb", .points = {{1, 100}, {2, 100}}}},
      .from_zero = true};
  EXPECT_THAT(ReportToHtml(report), HasSubstr(DrawLineChart(efficiency)));
  const Report same = MakeReport({directory / "slower", directory / "two"}).value();
  EXPECT_THAT(ReportToHtml(same), AllOf(HasSubstr("Scaling efficiency"), Not(HasSubstr("cores (ranks"))));
}

}  // namespace
}  // namespace hadal
