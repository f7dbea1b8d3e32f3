#include "tools/report/report_curves.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/drawing/line_chart.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

// A line per run of one number over the steps.
template <typename Value>
LineChart OverSteps(const Report& report, std::string title, std::string unit, const Value& value) {
  LineChart chart{.title = std::move(title), .x_label = "step", .y_label = std::move(unit)};
  for (size_t i = 0; i < report.runs.size(); ++i) {
    ChartSeries series{.name = report.runs[i].name, .colour = kSeriesColours[i % std::size(kSeriesColours)]};
    for (const StepMetrics& step : report.runs[i].steps) {
      series.points.emplace_back(static_cast<double>(step.step), value(step));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Adds a run's dots, if `value` has any.
template <typename Value>
void AddValidations(const Report& report, const char* what, const Value& value, LineChart& chart) {
  for (size_t i = 0; i < report.runs.size(); ++i) {
    ChartSeries dots{.name = absl::StrCat(report.runs[i].name, ": ", what),
                     .colour = kSeriesColours[i % std::size(kSeriesColours)],
                     .dots = true};
    for (const ValidationRecord& v : report.runs[i].validations) {
      if (const std::optional<double> y = value(v)) dots.points.emplace_back(static_cast<double>(v.step), *y);
    }
    if (!dots.points.empty()) chart.series.push_back(std::move(dots));
  }
}

bool IsSmoothed(const Report& report) {
  return std::any_of(report.runs.begin(), report.runs.end(), [](const RunRecord& run) {
    return std::any_of(run.steps.begin(), run.steps.end(),
                       [](const StepMetrics& step) { return std::isfinite(step.loss) && step.loss != step.nll; });
  });
}

// The first one and the last ones, to be read in order.
void AppendSamples(const RunRecord& run, std::string& section) {
  constexpr size_t kLast = 4;
  if (run.samples.empty()) return;
  absl::StrAppend(&section, "<h3>Translations by ", EscapeMarkup(run.name), "</h3>\n");
  for (size_t i = 0; i < run.samples.size(); ++i) {
    if (i > 0 && i + kLast < run.samples.size()) continue;
    absl::StrAppend(&section, "<pre>step ", run.samples[i].step, "\n", EscapeMarkup(run.samples[i].text), "</pre>\n");
  }
}

}  // namespace

std::string CurvesSection(const Report& report) {
  LineChart nll = OverSteps(report, "Loss", "nll, nats per target token", [](const StepMetrics& s) { return s.nll; });
  AddValidations(
      report, "validation", [](const ValidationRecord& v) { return std::optional(v.nll); }, nll);
  LineChart bleu{.title = "BLEU of the validation", .x_label = "step", .y_label = "0 to 100", .from_zero = true};
  AddValidations(
      report, "BLEU", [](const ValidationRecord& v) { return v.bleu; }, bleu);
  LineChart wer{
      .title = "Word error rate of the validation", .x_label = "step", .y_label = "share of words", .from_zero = true};
  AddValidations(
      report, "WER", [](const ValidationRecord& v) { return v.wer; }, wer);
  LineChart smoothed = OverSteps(report, "Loss with label smoothing", "what is minimised, nats per target token",
                                 [](const StepMetrics& s) { return s.loss; });
  LineChart rate =
      OverSteps(report, "Learning rate", "factor of the update", [](const StepMetrics& s) { return s.learning_rate; });
  LineChart speed = OverSteps(report, "Throughput", "target tokens per second",
                              [](const StepMetrics& s) { return s.tokens_per_second; });
  LineChart norm = OverSteps(report, "Gradient norm", "2-norm of the loss gradient",
                             [](const StepMetrics& s) { return s.gradient_norm; });
  rate.from_zero = speed.from_zero = true;
  norm.logarithmic = true;
  if (!IsSmoothed(report)) smoothed.series.clear();
  std::string section = "<h2>Curves</h2>\n<div class=\"charts\">\n";
  for (const LineChart* chart : {&nll, &bleu, &wer, &smoothed, &norm, &rate, &speed}) {
    if (!chart->series.empty()) absl::StrAppend(&section, "<div>", DrawLineChart(*chart), "</div>\n");
  }
  absl::StrAppend(&section, "</div>\n");
  for (const RunRecord& run : report.runs) AppendSamples(run, section);
  return section;
}

}  // namespace hadal
