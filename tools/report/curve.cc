#include "tools/report/curve.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/depth_metrics.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/output/work_progress.h"
#include "tools/python_child.h"
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

// The picture of --svg, by pyhadal. Returns the exit code.
int DrawCurves(const CurveCommandOptions& options) {
  std::vector<std::string> words = {absl::StrCat("--metric=", options.metric), absl::StrCat("--svg=", options.svg)};
  for (const std::string& label : options.labels) words.push_back(absl::StrCat("--label=", label));
  if (!options.depth.empty()) words.push_back(absl::StrCat("--depth=", options.depth));
  if (options.dark) words.emplace_back("--dark");
  words.emplace_back("--");
  words.insert(words.end(), options.runs.begin(), options.runs.end());
  return RunPyhadal("curve", std::move(words));
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
  for (size_t i = 0; i < options.runs.size(); ++i) {
    const std::string label = Printable(options.labels.empty() ? LabelOf(options.runs[i]) : options.labels[i]);
    HADAL_ASSIGN_OR_RETURN(curves.emplace_back(), ReadCurve(options.runs[i], options.metric, label));
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
    if (!options->svg.empty()) {
      exit_code = DrawCurves(*options);
      return;
    }
    const TerminalStyle style = DetectTerminal(STDOUT_FILENO);
    options->plot.unicode = style.unicode;
    options->plot.color = style.color;
    const absl::Status status = RunCurve(*options, std::cout);
    exit_code = EndTool("curve", status);
  });
}

}  // namespace hadal
