#include "tools/report/report_depth.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/drawing/depth_heat_map.h"
#include "tools/drawing/line_chart.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

// The records of a run that have a series over the depth.
std::vector<const DepthMetrics*> RecordsWith(const RunRecord& run, DepthSeries series) {
  std::vector<const DepthMetrics*> records;
  for (const DepthMetrics& record : run.depth) {
    const size_t sublayers = record[series].size();
    if (sublayers == 0 || (!records.empty() && sublayers != (*records.front())[series].size())) continue;
    records.push_back(&record);
  }
  return records;
}

DepthHeatMap MapOf(const RunRecord& run, DepthSeries series, const std::vector<const DepthMetrics*>& records) {
  const DepthSeriesInfo& info = kDepthSeries[static_cast<size_t>(series)];
  DepthHeatMap map{.title = run.name,
                   .unit = info.unit,
                   .logarithmic = info.logarithmic,
                   .x_label = absl::StrCat("recorded step; ", (*records.front())[series].size(), " sublayers upwards"),
                   .encoder_sublayers = run.encoder_sublayers};
  for (const DepthMetrics* record : records) {
    map.columns.push_back(record->step);
    map.records.push_back((*record)[series]);
  }
  return map;
}

// The first record, the last, and those at a third and at two thirds of the records.
std::string Profiles(const RunRecord& run, DepthSeries series, const std::vector<const DepthMetrics*>& records) {
  const DepthSeriesInfo& info = kDepthSeries[static_cast<size_t>(series)];
  LineChart chart{.title = run.name,
                  .x_label = "sublayer, encoder then decoder",
                  .y_label = info.unit,
                  .logarithmic = info.logarithmic};
  std::vector<size_t> chosen;
  for (const size_t third : {0, 1, 2, 3}) {
    const size_t index = (records.size() - 1) * third / 3;
    if (chosen.empty() || chosen.back() != index) chosen.push_back(index);
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    ChartSeries line{.name = absl::StrCat("step ", records[chosen[i]]->step), .colour = kSeriesColours[i]};
    const std::vector<float>& values = (*records[chosen[i]])[series];
    for (size_t s = 0; s < values.size(); ++s) {
      if (!std::isnan(values[s])) line.points.emplace_back(static_cast<double>(s), values[s]);
    }
    chart.series.push_back(std::move(line));
  }
  return DrawLineChart(chart);
}

std::string ModelUpdate(const Report& report) {
  LineChart chart{.title = "Change of the model since its first weights",
                  .x_label = "update",
                  .y_label = "‖ΔF‖ per target token",
                  .from_zero = true};
  for (size_t i = 0; i < report.runs.size(); ++i) {
    ChartSeries series{.name = report.runs[i].name, .colour = kSeriesColours[i % std::size(kSeriesColours)]};
    for (const DepthMetrics& record : report.runs[i].depth) {
      if (record.model_update) series.points.emplace_back(static_cast<double>(record.update), *record.model_update);
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : absl::StrCat("<div>", DrawLineChart(chart), "</div>\n");
}

// Each run's map, all on one scale, and its curves.
std::string SeriesMarkup(const Report& report, DepthSeries series) {
  std::vector<DepthHeatMap> maps;
  std::vector<std::string> profiles;
  for (const RunRecord& run : report.runs) {
    const std::vector<const DepthMetrics*> records = RecordsWith(run, series);
    if (records.empty()) continue;
    maps.push_back(MapOf(run, series, records));
    profiles.push_back(Profiles(run, series, records));
  }
  if (maps.empty()) return "";
  const std::optional<std::pair<double, double>> range = CommonRange(maps);
  std::string markup = absl::StrCat("<h3>", EscapeMarkup(kDepthSeries[static_cast<size_t>(series)].title),
                                    "</h3>\n<div class=\"charts\">\n");
  for (size_t i = 0; i < maps.size(); ++i) {
    maps[i].range = range;
    absl::StrAppend(&markup, "<div>", DrawDepthHeatMap(maps[i]), "</div>\n<div>", profiles[i], "</div>\n");
  }
  return absl::StrCat(markup, "</div>\n");
}

}  // namespace

std::string DepthSection(const Report& report) {
  const bool recorded =
      std::any_of(report.runs.begin(), report.runs.end(), [](const RunRecord& run) { return !run.depth.empty(); });
  if (!recorded) return "";
  std::string section = absl::StrCat("<h2>Depth</h2>\n<div class=\"charts\">\n", ModelUpdate(report), "</div>\n");
  for (size_t s = 0; s < kDepthSeriesCount; ++s) section += SeriesMarkup(report, static_cast<DepthSeries>(s));
  absl::StrAppend(
      &section,
      "<p class=\"note\">Gradients and updates are of the step's own micro-batches; activations, similarity and "
      "‖ΔF‖ of a few fixed sentences, without dropout, with the weights after the step's update. "
      "The runs' maps of one quantity have one scale. White: no such tensor. Red: not finite.</p>\n");
  return section;
}

}  // namespace hadal
