// The files that give the costs of a step's parts: a profile measured by `hadal bench profile`, a machine's
// description, or both (then the profile's costs, with the machine's links between nodes).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "tools/command_line.h"
#include "tools/plan/machine.h"
#include "tools/plan/step_costs.h"

namespace hadal {

struct CostFiles {
  std::string profile, machine;  // paths; empty: none

  bool empty() const { return profile.empty() && machine.empty(); }
};

// Adds --profile and --machine. `purpose` completes their descriptions ("shown beside what was measured").
void AddCostFlags(Command command, const std::string& purpose, CostFiles& files);

// The contents of CostFiles.
struct LoadedCosts {
  std::optional<config::Profile> profile;
  std::optional<Machine> machine;

  // Errors: those of MakeProfiledCosts and MakeRooflineCosts.  REQUIRES: a profile or a machine is set.
  absl::StatusOr<std::unique_ptr<StepCosts>> For(const ModelOptions& model) const;
};

// Errors: those of LoadProfile and LoadMachine.
absl::StatusOr<LoadedCosts> LoadCosts(const CostFiles& files);

// The copies that a run keeps in its directory. StoredCosts names the files that exist there.
CostFiles StoredCosts(const std::string& run_directory);
absl::Status StoreCosts(const CostFiles& files, const std::string& run_directory);

}  // namespace hadal
