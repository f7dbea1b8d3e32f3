#include "tools/compare/comparison_run.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_difference.h"
#include "tools/config/config_loading.h"

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
  HADAL_ASSIGN_OR_RETURN(std::string difference, DiffConfigs(before, config));
  if (!difference.empty()) return CellPlan{.task = CellTask::kChanged, .difference = std::move(difference)};
  HADAL_ASSIGN_OR_RETURN(const std::vector<ConfigDifference> all, CompareConfigs(before, config));
  const bool finished = run.end == CellEnd::kDone || run.end == CellEnd::kDiverged ||
                        (run.end == CellEnd::kCut && run_seconds > 0 && run.wall_seconds >= run_seconds);
  return CellPlan{.task = finished && !MovesLimit(all) ? CellTask::kNothing : CellTask::kGoOn};
}

}  // namespace hadal
