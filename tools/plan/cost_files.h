// Reads the files from which `hadal` estimates the time of a training step: the arguments --profile and --machine.
//
//   --profile   times of a model's parts on this hardware, measured by `hadal bench profile`
//   --machine   a description of the hardware (configs/machines), from which times are computed by a roofline model
//   both        the measured times, with the links between nodes of the machine description
// A run keeps copies of the files in its run directory (StoreCosts), where later commands find them (StoredCosts).
// Blocking: file input and output.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "tools/command_line.h"
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
