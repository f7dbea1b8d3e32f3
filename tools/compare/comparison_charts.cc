#include "tools/compare/comparison_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/drawing/line_chart.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr size_t kMostPoints = 28;
// A line of a chart: a run and its name in the legend.
struct Line {
  std::string name;
  const ComparedCell* cell;
};

std::vector<Line> ColumnLines(const ComparisonPanel& panel, size_t column) {
  std::vector<Line> lines;
  for (size_t row = 0; row < panel.rows.size(); ++row) lines.push_back({panel.rows[row], panel.cells[row][column]});
  return lines;
}

std::vector<Line> RowLines(const ComparisonPanel& panel, size_t row) {
  std::vector<Line> lines;
  for (size_t column = 0; column < panel.columns.size(); ++column) {
    lines.push_back({panel.columns[column], panel.cells[row][column]});
  }
  return lines;
}

using PointsOf = std::function<Points(const RunRecord&)>;

// A series for each line that has run and for which `points` returns any. A line has the same colour in all charts.
std::vector<ChartSeries> SeriesOf(const std::vector<Line>& lines, const PointsOf& points) {
  std::vector<ChartSeries> all;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].cell == nullptr || !lines[i].cell->has_run()) continue;
    ChartSeries series{.name = lines[i].name, .colour = kSeriesColours[i % std::size(kSeriesColours)]};
    series.points = points(lines[i].cell->record);
    if (!series.points.empty()) all.push_back(std::move(series));
  }
  return all;
}

// "" without series.
std::string Draw(const LineChart& chart) {
  if (chart.series.empty()) return "";
  return absl::StrCat("<div>", DrawLineChart(chart), "</div>\n");
}

std::string Chart(LineChart chart, const std::vector<Line>& lines, const PointsOf& points) {
  chart.series = SeriesOf(lines, points);
  return Draw(chart);
}

// A chart of losses. A run whose loss explodes would flatten all others, so no line is higher than 1.5 times the median
// of the lines' first points, and the name of one that would be is marked.
std::string LossChart(LineChart chart, const std::vector<Line>& lines, const PointsOf& points) {
  chart.series = SeriesOf(lines, points);
  std::vector<double> starts;
  for (const ChartSeries& series : chart.series) {
    if (std::isfinite(series.points.front().second)) starts.push_back(series.points.front().second);
  }
  if (starts.empty()) return Draw(chart);
  std::nth_element(starts.begin(), starts.begin() + starts.size() / 2, starts.end());
  const double ceiling = 1.5 * starts[starts.size() / 2];
  for (ChartSeries& series : chart.series) {
    bool leaves = false;
    for (auto& [x, y] : series.points) {
      if (y <= ceiling) continue;
      y = ceiling;  // also for a loss that is not finite
      leaves = true;
    }
    if (leaves) series.name += " (leaves the chart)";
  }
  return Draw(chart);
}

Points TrainingNll(const RunRecord& run) {
  Points points;
  for (const StepMetrics& step : run.steps) points.emplace_back(static_cast<double>(step.step), step.nll);
  // Steps that were left out are no part of the curve; a run that ends without a loss shows it.
  const auto finite = [](const auto& point) { return std::isfinite(point.second); };
  const auto last = std::find_if(points.rbegin(), points.rend(), finite).base();
  points.erase(std::remove_if(points.begin(), last, std::not_fn(finite)), last);
  return MeanPoints(points, kMostPoints);
}

Points Validations(const RunRecord& run) {
  Points points;
  for (const ValidationRecord& v : run.validations) points.emplace_back(static_cast<double>(v.step), v.nll);
  return points;
}

// The logarithm of ‖ΔF‖, which spans decades.
Points ModelUpdates(const RunRecord& run) {
  Points points;
  for (const DepthMetrics& record : run.depth) {
    if (!record.model_update || *record.model_update == 0) continue;
    points.emplace_back(static_cast<double>(record.update), std::log10(*record.model_update));
  }
  return MeanPoints(points, kMostPoints);
}

// A series over the depth at one record. Sublayers without the tensor are left out; values that are not finite
// interrupt the line.
Points OverDepth(const DepthMetrics* record, DepthSeries series) {
  Points points;
  if (record == nullptr) return points;
  const bool logarithmic = kDepthSeries[static_cast<size_t>(series)].logarithmic;
  const std::vector<float>& values = (*record)[series];
  for (size_t s = 0; s < values.size(); ++s) {
    if (std::isnan(values[s]) || (logarithmic && values[s] == 0)) continue;
    points.emplace_back(static_cast<double>(s), logarithmic ? std::log10(values[s]) : values[s]);
  }
  return MeanPoints(points, kMostPoints);
}

// log10 of the gradient before each LayerNorm over that after it, at the first record.
Points NormRatios(const RunRecord& run) {
  const DepthMetrics* first = FirstRecord(run, DepthSeries::kNormInputGradient);
  Points points;
  if (first == nullptr) return points;
  const std::vector<float>& input = (*first)[DepthSeries::kNormInputGradient];
  const std::vector<float>& output = (*first)[DepthSeries::kNormOutputGradient];
  for (size_t s = 0; s < std::min(input.size(), output.size()); ++s) {
    const float ratio = input[s] / output[s];
    if (std::isfinite(ratio) && ratio > 0) points.emplace_back(static_cast<double>(s), std::log10(ratio));
  }
  return MeanPoints(points, kMostPoints);
}

LineChart Titled(std::string title, std::string x_label, std::string y_label) {
  return {.title = std::move(title), .x_label = std::move(x_label), .y_label = std::move(y_label)};
}

// Charts under a heading; "" without charts.
std::string Group(std::string_view heading, const std::string& charts) {
  if (charts.empty()) return "";
  return absl::StrCat(heading.empty() ? "" : absl::StrCat("<h3>", EscapeMarkup(heading), "</h3>\n"),
                      "<div class=\"charts\">\n", charts, "</div>\n");
}

// "depth 18, warmup=none".
std::string ColumnHeading(const ComparisonReport& report, const ComparisonPanel& panel, size_t column) {
  const std::string& label = panel.columns[column];
  std::string heading = label.empty() ? "" : absl::StrCat(report.axes[1].name, " ", label);
  if (!panel.name.empty()) absl::StrAppend(&heading, heading.empty() ? "" : ", ", panel.name);
  return heading;
}

std::string ColumnInstruments(const std::vector<Line>& lines) {
  const auto over_depth = [&](const char* title, const char* unit, DepthSeries series, bool last) {
    return Chart(Titled(title, "sublayer, encoder then decoder", unit), lines, [=](const RunRecord& run) {
      return OverDepth(last ? LastRecord(run, series) : FirstRecord(run, series), series);
    });
  };
  return absl::StrCat(
      Chart(Titled("Change of the model, ‖ΔF‖", "update", "log10, per target token"), lines, ModelUpdates),
      over_depth("Gradient of the activations, first step", "log10 of the 2-norm", DepthSeries::kOutputGradient, false),
      over_depth("Gradient of the parameters, first step", "log10 of the 2-norm", DepthSeries::kParameterGradient,
                 false),
      over_depth("Gradient of the parameters, at the end", "log10 of the 2-norm", DepthSeries::kParameterGradient,
                 true),
      Chart(Titled("Gradient before / after each norm", "sublayer, encoder then decoder", "log10, first step"), lines,
            NormRatios),
      over_depth("Similarity to the previous sublayer", "mean cosine, at the end", DepthSeries::kSimilarity, true),
      over_depth("Active hidden units", "share, at the end", DepthSeries::kActive, true));
}

}  // namespace

Points MeanPoints(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points means;
  for (size_t block = 0; block < most; ++block) {
    const size_t begin = points.size() * block / most, end = points.size() * (block + 1) / most;
    double x = 0, y = 0;
    for (size_t i = begin; i < end; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    const double count = static_cast<double>(end - begin);
    means.emplace_back(x / count, y / count);
  }
  return means;
}

std::string CurvesMarkup(const ComparisonReport& report, const ComparisonPanel& panel) {
  std::string markup;
  for (size_t column = 0; column < panel.columns.size(); ++column) {
    const std::vector<Line> lines = ColumnLines(panel, column);
    markup += Group(ColumnHeading(report, panel, column),
                    LossChart(Titled("Validation", "step", "nll, nats per target token"), lines, Validations) +
                        LossChart(Titled("Training", "step", "nll, nats per target token"), lines, TrainingNll));
  }
  if (panel.columns.size() == 1) return markup;
  std::string charts;
  for (size_t row = 0; row < panel.rows.size(); ++row) {
    charts += LossChart(Titled(absl::StrCat("Validation: ", panel.rows[row]), "step", "nll, nats per target token"),
                        RowLines(panel, row), Validations);
  }
  const std::string heading = absl::StrCat("each ", report.axes[0].name, " over ", report.axes[1].name);
  return markup + Group(panel.name.empty() ? heading : absl::StrCat(heading, ", ", panel.name), charts);
}

std::string InstrumentsMarkup(const ComparisonReport& report, const ComparisonPanel& panel) {
  std::string markup;
  for (size_t column = 0; column < panel.columns.size(); ++column) {
    markup += Group(ColumnHeading(report, panel, column), ColumnInstruments(ColumnLines(panel, column)));
  }
  return markup;
}

}  // namespace hadal
