#include "tools/report/curve.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/depth_metrics.h"
#include "runtime/files.h"
#include "runtime/printable.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text_line.h"
#include "tools/drawing/depth_heat_map.h"
#include "tools/drawing/line_chart.h"
#include "tools/drawing/svg.h"
#include "tools/output/terminal.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

std::string MetricsPath(const std::string& run) {
  std::error_code error;
  return std::filesystem::is_directory(run, error) ? JoinPath(run, kMetricsName) : run;
}

// The run directory's name.
std::string LabelOf(const std::string& run) {
  std::filesystem::path path = std::filesystem::path(run).lexically_normal();
  if (!path.has_filename() || path.filename() == kMetricsName) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() ? run : name;
}

// Calls `read` with each line of a metrics.jsonl; ignores a truncated last line.
absl::Status ReadLines(const std::string& path, const std::string& run, const std::function<void(const Json&)>& read) {
  std::ifstream in;
  if (OpenFile(path).ok()) in.open(path, std::ios::binary);  // no device, no pipe
  if (!in.is_open())
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened; is ", run, " a run directory?"));
  std::string text;
  int64_t lines = 0;
  for (; ReadLine(in, text) && !in.eof(); ++lines) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ":", lines + 1, ": not a JSON object"));
    try {
      read(line);
    } catch (const Json::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", lines + 1, ": ", error.what()));
    }
  }
  return in.bad() ? ReadLineError(path, lines, text) : absl::OkStatus();
}

void CollectNames(const Json& line, const std::string& prefix, std::set<std::string>& names) {
  for (const auto& [key, value] : line.items()) {
    if (key != "step" && (value.is_number() || value.is_null())) names.insert(prefix + key);
  }
}

// A run's records of one number of every sublayer, as a map on a scale of its own.
absl::StatusOr<DepthHeatMap> ReadDepth(const std::string& run, const DepthSeriesInfo& series,
                                       const std::string& label) {
  const std::string path = MetricsPath(run);
  DepthHeatMap map{
      .title = label, .unit = absl::StrCat(series.title, ", ", series.unit), .logarithmic = series.logarithmic};
  HADAL_RETURN_IF_ERROR(ReadLines(path, run, [&](const Json& line) {
    const std::string event = line.value("event", "");
    if (event == "run") map.encoder_sublayers = line.value("encoder_sublayers", 0);
    if (event != "depth" || !line.contains(series.name)) return;
    const Json& values = line.at(series.name);
    if (values.empty() || (!map.records.empty() && values.size() != map.records.front().size())) return;
    map.columns.push_back(line.value("step", int64_t{0}));
    std::vector<float>& record = map.records.emplace_back();
    for (const Json& value : values) {
      record.push_back(value.is_number() ? value.get<float>() : value.is_string() ? INFINITY : NAN);
    }
  }));
  if (map.records.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no record of the depth holds '", series.name, "'; were instruments.enabled?"));
  }
  map.x_label = absl::StrCat("recorded step; ", map.records.front().size(), " sublayers upwards");
  return map;
}

// The maps side by side, above the chart of the curves.
std::string DrawPicture(const std::vector<Curve>& curves, std::vector<DepthHeatMap> maps, const std::string& metric) {
  constexpr double kWidth = 880, kMapHeight = 300, kChartHeight = 220;
  LineChart chart{.title = metric, .x_label = "step", .width = kWidth, .height = kChartHeight};
  for (size_t i = 0; i < curves.size(); ++i) {
    chart.series.push_back(
        {.name = curves[i].label, .colour = kSeriesColours[i % std::size(kSeriesColours)], .points = curves[i].points});
  }
  constexpr size_t kMapsInARow = 3;
  const size_t columns = std::clamp<size_t>(maps.size(), 1, kMapsInARow), rows = (maps.size() + columns - 1) / columns;
  const double chart_top = kMapHeight * static_cast<double>(rows);
  Svg svg(kWidth, chart_top + LineChartHeight(chart));
  const std::optional<std::pair<double, double>> range = CommonRange(maps);
  for (size_t i = 0; i < maps.size(); ++i) {
    maps[i].range = range;
    maps[i].width = std::floor(kWidth / static_cast<double>(columns));
    maps[i].height = kMapHeight;
    svg.Place(static_cast<double>(i % columns) * maps[i].width, kMapHeight * static_cast<double>(i / columns),
              DrawDepthHeatMap(maps[i]));
  }
  svg.Place(0, chart_top, DrawLineChart(chart));
  return std::move(svg).Finish();
}

}  // namespace

absl::StatusOr<Curve> ReadCurve(const std::string& run, const std::string& metric, std::string label) {
  const std::string path = MetricsPath(run);
  const bool of_validation = absl::StartsWith(metric, "valid/");
  const std::string key(absl::StripPrefix(metric, "valid/"));
  Curve curve{.label = std::move(label), .points = {}};
  std::set<std::string> names;
  HADAL_RETURN_IF_ERROR(ReadLines(path, run, [&](const Json& line) {
    const std::string event = line.value("event", "");
    if (event != "step" && event != "validation") return;
    CollectNames(line, event == "step" ? "" : "valid/", names);
    if ((event == "validation") != of_validation || !line.contains(key) || !line.contains("step")) return;
    const Json& value = line.at(key);
    if (!value.is_number() && !value.is_null()) return;
    curve.points.emplace_back(line.at("step").get<double>(), value.is_null() ? NAN : value.get<double>());
  }));
  if (!curve.points.empty()) return curve;
  if (names.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no step yet"));
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": no line has '", metric, "'; available: ", absl::StrJoin(names, ", ")));
}

absl::Status RunCurve(const CurveCommandOptions& options, std::ostream& out) {
  if (!options.labels.empty() && options.labels.size() != options.runs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.labels.size(), " labels for ", options.runs.size(), " runs; give one per run, or none"));
  }
  std::vector<Curve> curves;
  std::vector<DepthHeatMap> maps;
  for (size_t i = 0; i < options.runs.size(); ++i) {
    const std::string label = Printable(options.labels.empty() ? LabelOf(options.runs[i]) : options.labels[i]);
    HADAL_ASSIGN_OR_RETURN(curves.emplace_back(), ReadCurve(options.runs[i], options.metric, label));
    for (const DepthSeriesInfo& series : kDepthSeries) {
      if (options.depth != series.name) continue;
      HADAL_ASSIGN_OR_RETURN(maps.emplace_back(), ReadDepth(options.runs[i], series, label));
    }
  }
  if (!options.svg.empty()) {
    const std::string picture = DrawPicture(curves, std::move(maps), options.metric);
    return ReplaceFile(options.svg, options.dark ? DarkSvg(picture) : picture, absl::StrCat(getpid()));
  }
  TextPlotOptions plot = options.plot;
  plot.title = options.metric;
  plot.x_label = "step";
  out << PlotCurves(curves, plot);
  return absl::OkStatus();
}

void AddCurveCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("curve", "Draw a metric of one or more runs, as text or as a picture");
  auto options = std::make_shared<CurveCommandOptions>();
  command.AddOption("runs", options->runs, "Run directories, or metrics.jsonl files").Required();
  command
      .AddOption("-m,--metric", options->metric,
                 "Field of event step (loss, nll, learning_rate …), or valid/nll, valid/bleu …")
      .ShowDefault();
  command.AddOption("-l,--label", options->labels, "Name of each run in the legend");
  command.AddOption("--width", options->plot.columns, "Columns").InRange(8, 1000).ShowDefault();
  command.AddOption("--height", options->plot.rows, "Rows").InRange(3, 1000).ShowDefault();
  const CommandOption svg = command.AddOption("--svg", options->svg, "Write a picture to this file instead");
  std::vector<std::string> depths;
  for (const DepthSeriesInfo& series : kDepthSeries) depths.push_back(series.name);
  command.AddOption("--depth", options->depth, "Above it each run's sublayers over the steps, as a heat map")
      .OneOf(depths)
      .Needs(svg);
  command.AddFlag("--dark", options->dark, "Colours for a dark page").Needs(svg);
  command.Runs([options, &exit_code] {
    const TerminalStyle style = DetectTerminal(STDOUT_FILENO);
    options->plot.unicode = style.unicode;
    options->plot.color = style.color;
    const absl::Status status = RunCurve(*options, std::cout);
    exit_code = EndTool("curve", status);
  });
}

}  // namespace hadal
