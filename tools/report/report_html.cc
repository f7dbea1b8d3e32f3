// The report as one self-contained HTML file: tables and inline SVG.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/run_directory.h"
#include "tools/drawing/html_page.h"
#include "tools/drawing/line_chart.h"
#include "tools/drawing/stacked_bars.h"
#include "tools/drawing/svg.h"
#include "tools/drawing/timeline_svg.h"
#include "tools/output/human_units.h"
#include "tools/plan/plan_report.h"
#include "tools/report/report.h"
#include "tools/report/report_curves.h"
#include "tools/report/report_depth.h"
#include "tools/report/run_settings.h"
#include "tools/report/trace_timeline.h"

namespace hadal {
namespace {

std::string Milliseconds(double seconds) { return absl::StrFormat("%.1f ms", 1e3 * seconds); }
std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }
std::string Mebibytes(int64_t bytes) { return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20)); }

void Note(std::string_view text, std::string& page) { page += HtmlNote(text); }

// The first and the last ones, because a run that skips steps for hours warns at each.
void AppendTexts(const std::string& run, const std::vector<TextRecord>& texts, const char* what, std::string& page) {
  constexpr size_t kEachEnd = 20;
  const size_t count = texts.size();
  for (size_t i = 0; i < count; ++i) {
    if (i == kEachEnd && count > 2 * kEachEnd) {
      Note(absl::StrCat(run, ": ", count - 2 * kEachEnd, " more ", what, ", in ", kMetricsName), page);
      i = count - kEachEnd;
    }
    Note(absl::StrCat(run, ", step ", texts[i].step, ": ", texts[i].text), page);
  }
}

void AppendRuns(const Report& report, std::string& page) {
  absl::StrAppend(&page, "<h2>Runs</h2>\n");
  HtmlTable table({"run", "ranks × threads", "steps", "last nll", "best validation nll", "last score", "step",
                   "target tokens/s", "outside steps", "ended"});
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const RunRecord& run = report.runs[i];
    const RunSummary& summary = report.summaries[i];
    table.Add({run.name, absl::StrCat(run.ranks, " × ", run.threads), HumanCount(run.steps.back().step),
               HumanValue(run.steps.back().nll, 4), BestNllText(run), LastScoreText(run),
               Milliseconds(summary.step_seconds), HumanRate(summary.tokens_per_second()),
               absl::StrCat(Milliseconds(summary.outside_seconds), " per step"),
               run.finish.empty() ? "not yet" : run.finish});
  }
  absl::StrAppend(&page, std::move(table).Finish());
  Note(
      "Times are means over the steady steps: without the first and without skipped ones. \"Outside steps\" is data, "
      "metrics, "
      "validation and checkpoints.",
      page);
  for (const RunRecord& run : report.runs) {
    AppendTexts(run.name, run.diagnoses, "diagnoses", page);
    AppendTexts(run.name, run.warnings, "warnings", page);
  }
}

void AppendSettings(const Report& report, std::string& page) {
  const std::vector<std::vector<std::string>> rows = SettingsTable(report.runs);
  if (rows.empty()) return;
  HtmlTable table(rows[0]);
  for (size_t i = 1; i < rows.size(); ++i) table.Add(rows[i]);
  absl::StrAppend(&page, "<h2>Config</h2>\n", std::move(table).Finish());
  Note(absl::StrCat("Fields that differ from their default or between the runs; each run's ", kResolvedConfigName,
                    " has all."),
       page);
}

// The stage's times, means over its replicas; waiting is split only for the run as a whole.
void AppendStages(const RunRecord& run, const RunSummary& summary, std::string& page) {
  StackedBars bars{.title = absl::StrCat("Where each stage's step goes: ", run.name), .unit = "ms"};
  bars.parts = {{"forward", "#3b7dd8"},   {"recompute", "#7fb3f0"},          {"backward", "#d9822b"},
                {"optimizer", "#6b4fa0"}, {"waiting for a core", "#b59a00"}, {"checkpoint", "#c2559d"},
                {"wait", "#e05a5a"},      {"communication", "#14746f"},      {"unexplained", "#8d6e63"}};
  for (size_t stage = 0; stage < summary.stages.size(); ++stage) {
    const StageTimes& t = summary.stages[stage];
    const double busy = t.forward_seconds + t.recompute_seconds + t.backward_seconds + t.optimizer_seconds;
    const double core_wait = std::min(t.core_wait_seconds, busy), had_core = busy > 0 ? 1 - core_wait / busy : 1;
    std::vector<double> values{t.forward_seconds * had_core,
                               t.recompute_seconds * had_core,
                               t.backward_seconds * had_core,
                               t.optimizer_seconds * had_core,
                               core_wait,
                               t.checkpoint_seconds,
                               t.wait_seconds,
                               t.communication_seconds};
    double unexplained = summary.step_seconds;
    for (double& value : values) {
      unexplained -= value;
      value *= 1e3;
    }
    values.push_back(1e3 * std::max(0.0, unexplained));
    bars.rows.push_back({absl::StrCat("stage ", stage), std::move(values), Milliseconds(summary.step_seconds)});
  }
  absl::StrAppend(&page, "<div>", DrawStackedBars(bars), "</div>\n");
  const TimeParts& parts = *summary.parts;
  if (const std::string slow = DescribeSlowStage(summary); !slow.empty()) Note(absl::StrCat(slow, "."), page);
  if (summary.wait_is_split) {
    Note(absl::StrFormat(
             "Waiting, mean over the stages, that for others in the step's tail included: %s the schedule's bubble, %s "
             "imbalance between stages, %s exposed transfers and jitter.",
             Milliseconds(parts.bubble), Milliseconds(parts.imbalance), Milliseconds(parts.exposed_transfers)),
         page);
  }
  if (!summary.beyond_costs.empty()) {
    std::vector<std::string> stages;
    for (const int stage : ChooseRows(static_cast<int>(summary.beyond_costs.size()), 16)) {
      stages.push_back(absl::StrFormat("stage %d %+.1f%%", stage, 100 * summary.beyond_costs[stage]));
    }
    Note(absl::StrCat("Compute with a core, beyond what was predicted: ", absl::StrJoin(stages, ", "), "."), page);
  }
  if (run.ranks > 1) {
    Note(absl::StrFormat("Stage %d computes longest, %s above the mean.", summary.slowest_stage,
                         Percent(summary.slowest_excess)),
         page);
  }
}

void AppendMemory(const RunRecord& run, const RunSummary& summary, std::string& page) {
  if (summary.memory.empty()) return;
  absl::StrAppend(&page, "<h3>Memory of ", EscapeMarkup(run.name), "</h3>\n");
  HtmlTable table({"stage", "arena (planned)", "held between steps", "with allowance (planned)", "peak resident",
                   "peak / planned"});
  for (const int stage : ChooseRows(static_cast<int>(summary.memory.size()), 64)) {
    const StageMemory& memory = summary.memory[stage];
    const int64_t predicted = memory.arena_bytes + MemoryAllowance::Bytes(run.threads);
    table.Add({absl::StrCat(stage), Mebibytes(memory.arena_bytes),
               memory.held_bytes > 0 ? Mebibytes(memory.held_bytes) : "-", Mebibytes(predicted),
               Mebibytes(memory.peak_resident_bytes),
               Percent(static_cast<double>(memory.peak_resident_bytes) / static_cast<double>(predicted))});
  }
  absl::StrAppend(&page, std::move(table).Finish());
  Note(
      "Held: memory that the system cannot reclaim. The peak is inside a step, with packing buffers of products, and "
      "file pages "
      "(program, libraries, corpus), which belong to the page cache.",
      page);
}

void AppendTimeline(const RunRecord& run, std::string& page) {
  if (run.trace_json.empty()) return;
  absl::StrAppend(&page, "<h3>A step of ", EscapeMarkup(run.name), " in time</h3>\n");
  const absl::StatusOr<TracedStep> traced = TimelineFromTrace(run.trace_json);
  if (!traced.ok()) return Note(std::string(traced.status().message()), page);
  absl::StrAppend(&page, "<div>", DrawTimeline(traced->timeline, {}), "</div>\n");
  Note(absl::StrFormat("Step %d, traced; clocks agree within %.1f us. The file in the run's trace folder opens in "
                       "ui.perfetto.dev.",
                       traced->step, 1e6 * traced->clock_error_seconds),
       page);
}

void AppendTime(const Report& report, std::string& page) {
  absl::StrAppend(&page, "<h2>Time and memory</h2>\n");
  for (size_t i = 0; i < report.runs.size(); ++i) {
    if (report.summaries[i].parts) {
      AppendStages(report.runs[i], report.summaries[i], page);
    } else {
      Note(absl::StrCat(report.runs[i].name, ": no stage times recorded (logging.every_steps)"), page);
    }
    AppendMemory(report.runs[i], report.summaries[i], page);
    AppendTimeline(report.runs[i], page);
  }
}

void AppendScalingTable(const Report& report, const Scaling& scaling, std::string& page) {
  HtmlTable table({"run", "cores", "tokens per step", "step", "target tokens/s", "speed-up", "efficiency", "lost",
                   "causes sum to"});
  for (const ScalingRow& row : scaling.rows) {
    table.Add({report.runs[row.run].name, absl::StrCat(row.cores),
               HumanCount(static_cast<int64_t>(std::llround(row.tokens))), Milliseconds(row.step_seconds),
               HumanRate(row.tokens_per_second), absl::StrFormat("%.2f×", row.speedup), Percent(row.efficiency),
               Percent(1 - row.efficiency), Percent(row.causes.sum())});
  }
  absl::StrAppend(&page, std::move(table).Finish());
}

void AppendPredictions(const Report& report, std::string& page) {
  if (!report.no_predictions.empty()) Note(absl::StrCat("No prediction: ", report.no_predictions), page);
  const std::vector<std::vector<std::string>> rows = PredictionTable(report);
  if (rows.empty()) return;
  HtmlTable table(rows[0]);
  for (size_t i = 1; i < rows.size(); ++i) table.Add(rows[i]);
  absl::StrAppend(&page, "<h2>Predicted and measured</h2>\n");
  absl::StrAppend(&page, std::move(table).Finish());
  Note(absl::StrCat(kPredictionNote, " Costs: ", report.predictions.front().costs, "."), page);
}

void AppendScaling(const Report& report, std::string& page) {
  if (!report.no_scaling.empty()) {
    absl::StrAppend(&page, "<h2>Scaling</h2>\n");
    Note(absl::StrCat("Not compared: ", report.no_scaling), page);
  }
  if (!report.scaling) return;
  const Scaling& scaling = *report.scaling;
  absl::StrAppend(&page, "<h2>Scaling efficiency (", ToString(scaling.kind), ")</h2>\n");
  AppendScalingTable(report, scaling, page);
  StackedBars bars{.title = "What each run loses against the first, in percent of its core time", .unit = "%"};
  for (const TimePart& part : kTimeParts) bars.parts.push_back({part.name, part.colour});
  LineChart chart{.title = "Efficiency", .x_label = "cores (ranks × threads)", .y_label = "%", .from_zero = true};
  ChartSeries measured{.name = "runs", .colour = kSeriesColours[0], .dots = true};
  ChartSeries best{.name = "the best on so many cores", .colour = kSeriesColours[0]};
  ChartSeries ideal{.name = "ideal", .colour = "#bbbbbb"};
  for (const ScalingRow& row : scaling.rows) {
    BarRow bar{.name = absl::StrFormat("%s (%d)", report.runs[row.run].name, row.cores),
               .total = absl::StrCat(Percent(1 - row.efficiency), " lost")};
    for (const TimePart& part : kTimeParts) bar.values.push_back(100 * (row.causes.*part.seconds));
    bars.rows.push_back(std::move(bar));
    measured.points.emplace_back(row.cores, 100 * row.efficiency);
    if (!best.points.empty() && best.points.back().first == row.cores) continue;  // rows: the cheapest of them first
    best.points.push_back(measured.points.back());
    ideal.points.emplace_back(row.cores, 100);
  }
  const bool over_cores = best.points.size() > 1;
  chart.series = {std::move(measured), std::move(best), std::move(ideal)};
  absl::StrAppend(&page, "<div>", DrawStackedBars(bars), "</div>\n");
  if (over_cores) absl::StrAppend(&page, "<div>", DrawLineChart(chart), "</div>\n");
  Note(DescribeCompute(report), page);
  for (const ScalingRow& row : scaling.rows) {
    const std::string loss = DescribeLoss(row, report.summaries[row.run]);
    if (!loss.empty()) Note(absl::StrCat(report.runs[row.run].name, ": ", loss, "."), page);
  }
}

}  // namespace

std::string ReportToHtml(const Report& report) {
  std::string page = HtmlHead(absl::StrCat("hadal report: ", report.runs.front().name));
  absl::StrAppend(&page, "<h1>hadal report</h1>\n");
  Note(absl::StrCat(report.runs.front().model, ", ", HumanCount(report.runs.front().parameters), " parameters"), page);
  AppendRuns(report, page);
  AppendPredictions(report, page);
  AppendScaling(report, page);
  page += CurvesSection(report);
  page += DepthSection(report);
  AppendTime(report, page);
  AppendSettings(report, page);
  page += kHtmlEnd;
  return page;
}

}  // namespace hadal
