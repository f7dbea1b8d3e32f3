#include "tools/compare/comparison_result.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/data/corpus.h"
#include "runtime/data/sampling_order.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/resolved_config.h"
#include "tools/config/run_options.h"
#include "tools/corpus/inspect.h"
#include "tools/output/run_record.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<const char*, 7> kEnds = {"none", "running", "done", "diverged", "cut", "interrupted", "failed"};
constexpr int64_t kMostResultBytes = 1 << 20;

std::string CellPath(const std::string& run_directory) { return JoinPath(run_directory, kComparedCellName); }

bool MovesLimit(const std::vector<ConfigDifference>& differences) {
  for (const ConfigDifference& difference : differences) {
    if (absl::StartsWith(difference.field, "stop.")) return true;
  }
  return false;
}

// The mean training nll of the `part`-th fifth of the steps, counted from 0.
double MeanNll(const std::vector<StepMetrics>& steps, size_t part) {
  const size_t begin = steps.size() * part / 5, end = steps.size() * (part + 1) / 5;
  double sum = 0, count = 0;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(steps[i].nll)) continue;  // a skipped step
    sum += steps[i].nll;
    ++count;
  }
  return sum / count;
}

bool StillFalls(const std::vector<StepMetrics>& steps) {
  return steps.size() < 5 || MeanNll(steps, 3) - MeanNll(steps, 4) >= kFailsBelow;
}

Verdict Judge(const CellRun& run, const RunRecord& record, const std::optional<double>& below) {
  if (run.end == CellEnd::kDiverged) return Verdict::kDiverged;
  if (!below) return Verdict::kUnknown;
  if (*below >= kTrainsBelow) return Verdict::kTrains;
  if (*below >= kFailsBelow) return Verdict::kBetween;
  return StillFalls(record.steps) ? Verdict::kTooShort : Verdict::kFails;
}

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

std::string ToString(CellEnd end) { return kEnds[static_cast<size_t>(end)]; }

absl::StatusOr<CellRun> ReadCellRun(const std::string& run_directory) {
  const std::string path = CellPath(run_directory);
  if (!PathExists(path)) return CellRun{};
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostResultBytes));
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [&] {
    return absl::DataLossError(
        absl::StrCat(path, ": not written by hadal compare; remove ", run_directory, " to run this cell again"));
  };
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number() ? std::optional<double>(json[key].get<double>()) : std::nullopt;
  };
  if (!json.is_object() || !json.contains("end") || !json["end"].is_string()) return bad();
  CellRun run{.exit_code = static_cast<int>(number("exit_code").value_or(0)),
              .wall_seconds = number("wall_seconds").value_or(0),
              .cpu_seconds = number("cpu_seconds").value_or(0),
              .unigram_nll = number("unigram_nll")};
  for (size_t end = 0; end < kEnds.size(); ++end) {
    if (json["end"] == kEnds[end]) {
      run.end = static_cast<CellEnd>(end);
      return run;
    }
  }
  return bad();
}

absl::Status WriteCellRun(const std::string& run_directory, const CellRun& run) {
  OrderedJson json{{"end", ToString(run.end)},
                   {"exit_code", run.exit_code},
                   {"wall_seconds", run.wall_seconds},
                   {"cpu_seconds", run.cpu_seconds}};
  if (run.unigram_nll) json["unigram_nll"] = *run.unigram_nll;
  HADAL_RETURN_IF_ERROR(MakeDirectories(run_directory));
  return ReplaceFile(CellPath(run_directory), json.dump(1) + "\n", "new");
}

absl::StatusOr<CellPlan> PlanCell(const std::string& run_directory, const CellRun& run, const config::RunConfig& config,
                                  double run_seconds) {
  const std::string resolved = JoinPath(run_directory, kResolvedConfigName);
  if (!PathExists(resolved)) return CellPlan{.task = CellTask::kStart};
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig before, LoadConfig({resolved}, {}));
  HADAL_ASSIGN_OR_RETURN(std::string difference, ChangesToAccept(before, config));
  if (!difference.empty()) return CellPlan{.task = CellTask::kChanged, .difference = std::move(difference)};
  HADAL_ASSIGN_OR_RETURN(const std::vector<ConfigDifference> all, CompareConfigs(before, config));
  const bool finished = run.end == CellEnd::kDone || run.end == CellEnd::kDiverged ||
                        (run.end == CellEnd::kCut && run_seconds > 0 && run.wall_seconds >= run_seconds);
  return CellPlan{.task = finished && !MovesLimit(all) ? CellTask::kNothing : CellTask::kGoOn};
}

std::string ToString(Verdict verdict) {
  constexpr const char* kVerdicts[] = {"trains", "between", "fails", "too short", "diverged", "not known"};
  return kVerdicts[static_cast<size_t>(verdict)];
}

CellResult JudgeCell(const CellRun& run, const RunRecord& record) {
  CellResult result;
  if (!record.steps.empty()) {
    result.steps = record.steps.back().step;
    if (std::isfinite(record.steps.back().loss)) result.loss = record.steps.back().loss;
  }
  for (const ValidationRecord& validation : record.validations) {
    if (!std::isfinite(validation.nll) || (result.best_nll && validation.nll >= *result.best_nll)) continue;
    result.best_nll = validation.nll;
    result.best_step = validation.step;
  }
  if (result.best_nll && run.unigram_nll) result.below_unigram = *run.unigram_nll - *result.best_nll;
  result.verdict = Judge(run, record, result.below_unigram);
  return result;
}

absl::StatusOr<std::optional<double>> UnigramLevel(const config::RunConfig& config) {
  if (config.validation().every_steps() == 0 || config.data().validation().empty()) return std::nullopt;
  HADAL_ASSIGN_OR_RETURN(const Corpus train, Corpus::Open(config.data().train()));
  HADAL_ASSIGN_OR_RETURN(const Corpus validation, Corpus::Open(config.data().validation()));
  const BatchCapacity capacity = {.source_rows = config.batch().source_tokens(),
                                  .target_rows = config.batch().target_tokens(),
                                  .sentence_rows = config.model().max_positions()};
  const absl::StatusOr<ValidationSamples> validated =
      ChooseValidationSamples(validation, capacity, config.validation().max_sentences());
  if (absl::IsInvalidArgument(validated.status())) return std::nullopt;  // nothing fits
  HADAL_RETURN_IF_ERROR(validated.status());
  return UnigramNll(train, validation, validated->samples);
}

absl::Status ComparisonCorpora::Check(const config::RunConfig& config) {
  HADAL_ASSIGN_OR_RETURN(RunOptions options, MakeRunOptions(config));
  HADAL_RETURN_IF_ERROR(CheckTrainable(options.train));
  const std::string& prefix = options.train.train_data;
  if (manifests_.count(prefix) == 0) {
    HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(prefix));
    manifests_[prefix] = corpus.manifest();
  }
  HADAL_RETURN_IF_ERROR(FollowCorpus(manifests_[prefix], options.train));
  return ValidateModelOptions(options.train.model);
}

absl::StatusOr<std::optional<double>> ComparisonCorpora::Unigram(const config::RunConfig& config) {
  const auto key =
      std::make_tuple(config.data().train(), config.data().validation(), config.validation().max_sentences(),
                      config.validation().every_steps() > 0, config.batch().source_tokens(),
                      config.batch().target_tokens(), config.model().max_positions());
  if (levels_.count(key) == 0) {
    HADAL_ASSIGN_OR_RETURN(levels_[key], UnigramLevel(config));
  }
  return levels_[key];
}

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
