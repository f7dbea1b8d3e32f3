// Files that say what the parts of a step cost: a profile that `hadal bench profile` measured, a machine's description,
// or both (then the profile's costs, and the machine's links between nodes).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "tools/plan/machine.h"
#include "tools/plan/step_costs.h"

namespace CLI {
class App;
}

namespace hadal {

struct CostFiles {
  std::string profile, machine;  // paths; empty: none

  bool empty() const { return profile.empty() && machine.empty(); }
};

// --profile and --machine. `purpose`: what they are for, after their kind ("shown beside what was measured").
void AddCostFlags(CLI::App& command, const std::string& purpose, CostFiles& files);

// Both, read.
struct LoadedCosts {
  std::optional<config::Profile> profile;
  std::optional<Machine> machine;

  // Errors: those of MakeProfiledCosts and MakeRooflineCosts.  REQUIRES: at least one of them.
  absl::StatusOr<std::unique_ptr<StepCosts>> For(const ModelOptions& model) const;
};

// Errors: those of LoadProfile and LoadMachine.
absl::StatusOr<LoadedCosts> LoadCosts(const CostFiles& files);

// What a run keeps in its directory.
CostFiles StoredCosts(const std::string& run_directory);  // with the names of files that are there
absl::Status StoreCosts(const CostFiles& files, const std::string& run_directory);

}  // namespace hadal
