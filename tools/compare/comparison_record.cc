#include "tools/compare/comparison_record.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/compare/comparison_result.h"
#include "tools/compare/comparison_run.h"
#include "tools/output/run_record.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string Text(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

OrderedJson ToJson(const GridAxis& axis) {
  return {{"name", axis.name}, {"labels", axis.labels}, {"seeds", axis.is_seeds}};
}

void AddResult(const CellRun& run, const RunRecord& record, OrderedJson& json) {
  const CellResult result = JudgeCell(run, record);
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  json["model"] = record.model;
  json["parameters"] = record.parameters;
  json["steps"] = result.steps;
  json["verdict"] = ToString(result.verdict);
  add("loss", result.loss);
  add("best_validation_nll", result.best_nll);
  if (result.best_nll) json["best_step"] = result.best_step;
  add("below_unigram", result.below_unigram);
}

absl::StatusOr<OrderedJson> ToJson(const ComparisonGrid& grid, const GridCell& cell, const std::string& out) {
  const std::string directory = CellDirectory(out, cell);
  HADAL_ASSIGN_OR_RETURN(const CellRun run, ReadCellRun(directory));
  OrderedJson json{{"name", cell.name}};
  for (size_t axis = 0; axis < grid.axes.size(); ++axis) {
    json["labels"].push_back(grid.axes[axis].labels[cell.place[axis]]);
  }
  json["directory"] = CellDirectory("", cell);
  json["log"] = CellLogPath("", cell);
  json["state"] = ToString(run.end);
  json["exit_code"] = run.exit_code;
  json["wall_seconds"] = run.wall_seconds;
  json["cpu_seconds"] = run.cpu_seconds;
  if (run.unigram_nll) json["unigram_nll"] = *run.unigram_nll;
  if (!PathExists(JoinPath(directory, kMetricsName))) return json;
  const absl::StatusOr<RunRecord> record = ReadRun(directory);
  if (record.ok()) {
    AddResult(run, *record, json);
  } else if (record.status().code() != absl::StatusCode::kInvalidArgument) {  // InvalidArgument: no step yet
    return record.status();
  }
  return json;
}

}  // namespace

std::string CellDirectory(const std::string& out, const GridCell& cell) {
  return JoinPath(out.empty() ? "runs" : JoinPath(out, "runs"), cell.name);
}

std::string CellLogPath(const std::string& out, const GridCell& cell) {
  return JoinPath(out.empty() ? "logs" : JoinPath(out, "logs"), cell.name + ".log");
}

absl::Status WriteComparisonRecord(const ComparisonGrid& grid, const std::string& out) {
  std::vector<std::string> cells;  // one line each, easy to compare
  for (const GridCell& cell : grid.cells) {
    HADAL_ASSIGN_OR_RETURN(const OrderedJson json, ToJson(grid, cell, out));
    cells.push_back(Text(json));
  }
  OrderedJson axes = OrderedJson::array();
  for (const GridAxis& axis : grid.axes) axes.push_back(ToJson(axis));
  const std::string& title = grid.settings.title();
  const OrderedJson rule = {{"trains_below_unigram", kTrainsBelow}, {"fails_below_unigram", kFailsBelow}};
  HADAL_RETURN_IF_ERROR(MakeDirectories(out));
  return ReplaceFile(JoinPath(out, kComparisonRecordName),
                     absl::StrCat("{\"title\":", Text(title.empty() ? "Comparison" : title), ",\n\"note\":",
                                  Text(grid.settings.note()), ",\n\"rule\":", Text(rule), ",\n\"axes\":", Text(axes),
                                  ",\n\"cells\":[\n", absl::StrJoin(cells, ",\n"), "\n]}\n"),
                     "new");
}

}  // namespace hadal
