#include "tools/report/curve.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "tools/metrics/terminal.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

std::string MetricsPath(const std::string& run) {
  return std::filesystem::is_directory(run) ? absl::StrCat(run, "/metrics.jsonl") : run;
}

// The run directory's name.
std::string LabelOf(const std::string& run) {
  std::filesystem::path path = std::filesystem::path(run).lexically_normal();
  if (!path.has_filename() || path.filename() == "metrics.jsonl") path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() ? run : name;
}

void CollectNames(const Json& line, const std::string& prefix, std::set<std::string>& names) {
  for (const auto& [key, value] : line.items()) {
    if (key != "step" && (value.is_number() || value.is_null())) names.insert(prefix + key);
  }
}

}  // namespace

absl::StatusOr<Curve> ReadCurve(const std::string& run, const std::string& metric, std::string label) {
  const std::string path = MetricsPath(run);
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened; is ", run, " a run directory?"));
  const bool of_validation = absl::StartsWith(metric, "valid/");
  const std::string key(absl::StripPrefix(metric, "valid/"));
  Curve curve{.label = std::move(label), .points = {}};
  std::set<std::string> names;
  std::string text;
  for (int64_t number = 1; std::getline(in, text) && !in.eof(); ++number) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": not a JSON object"));
    const std::string event = line.value("event", "");
    if (event != "step" && event != "validation") continue;
    CollectNames(line, event == "step" ? "" : "valid/", names);
    if ((event == "validation") != of_validation || !line.contains(key) || !line.contains("step")) continue;
    const Json& value = line.at(key);
    if (!value.is_number() && !value.is_null()) continue;
    curve.points.emplace_back(line.at("step").get<double>(), value.is_null() ? NAN : value.get<double>());
  }
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
    const std::string label = options.labels.empty() ? LabelOf(options.runs[i]) : options.labels[i];
    HADAL_ASSIGN_OR_RETURN(curves.emplace_back(), ReadCurve(options.runs[i], options.metric, label));
  }
  TextPlotOptions plot = options.plot;
  plot.title = options.metric;
  plot.x_label = "step";
  out << PlotCurves(curves, plot);
  return absl::OkStatus();
}

void AddCurveCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("curve", "Draw a metric of one or more runs as text");
  auto options = std::make_shared<CurveCommandOptions>();
  command.AddOption("runs", options->runs, "Run directories, or metrics.jsonl files").Required();
  command.AddOption("-m,--metric", options->metric, "A number of the step lines, or valid/NAME").ShowDefault();
  command.AddOption("-l,--label", options->labels, "Name of each run in the legend");
  command.AddOption("--width", options->plot.columns, "Columns").InRange(8, 1000).ShowDefault();
  command.AddOption("--height", options->plot.rows, "Rows").InRange(3, 1000).ShowDefault();
  command.Runs([options, &exit_code] {
    const TerminalStyle style = DetectTerminal(STDOUT_FILENO);
    options->plot.unicode = style.unicode;
    options->plot.color = style.color;
    const absl::Status status = RunCurve(*options, std::cout);
    if (!status.ok()) std::cerr << "hadal curve: " << status.message() << "\n";
    exit_code = ToolExitCode(status);
  });
}

}  // namespace hadal
