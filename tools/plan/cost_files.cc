#include "tools/plan/cost_files.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/plan/profiled_costs.h"
#include "tools/plan/roofline_costs.h"

namespace hadal {
namespace {

constexpr int64_t kMostCostBytes = int64_t{1} << 24;

absl::Status Copy(const std::string& from, const std::string& to) {
  if (from.empty()) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(from, kMostCostBytes));
  return ReplaceFile(to, text, absl::StrCat(getpid()));
}

}  // namespace

void AddCostFlags(Command command, const std::string& purpose, CostFiles& files) {
  command.AddOption("--profile", files.profile, absl::StrCat("Costs measured by `hadal bench profile`: ", purpose));
  command.AddOption("--machine", files.machine, absl::StrCat("A machine's description (configs/machines): ", purpose));
}

absl::StatusOr<std::unique_ptr<StepCosts>> LoadedCosts::For(const ModelOptions& model) const {
  if (profile) return MakeProfiledCosts(*profile, model, machine);
  HADAL_CHECK(machine.has_value());
  return MakeRooflineCosts(*machine);
}

absl::StatusOr<LoadedCosts> LoadCosts(const CostFiles& files) {
  LoadedCosts costs;
  if (!files.profile.empty()) {
    HADAL_ASSIGN_OR_RETURN(costs.profile, LoadProfile(files.profile));
  }
  if (!files.machine.empty()) {
    HADAL_ASSIGN_OR_RETURN(costs.machine, LoadMachine(files.machine));
  }
  return costs;
}

CostFiles StoredCosts(const std::string& run_directory) {
  const auto there = [&](const char* name) {
    const std::string path = JoinPath(run_directory, name);
    return PathExists(path) ? path : std::string();
  };
  return {.profile = there(kProfileName), .machine = there(kMachineName)};
}

absl::Status StoreCosts(const CostFiles& files, const std::string& run_directory) {
  HADAL_RETURN_IF_ERROR(Copy(files.profile, JoinPath(run_directory, kProfileName)));
  return Copy(files.machine, JoinPath(run_directory, kMachineName));
}

}  // namespace hadal
