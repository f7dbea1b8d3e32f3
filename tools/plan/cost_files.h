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
#include "pipeline/options/train_options.h"
#include "tools/command_line.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Returns the seconds of one product [m, k] · [k, n] by the roofline model below, with elements of `element_bytes`.
double ProductSeconds(const Machine& machine, double m, double n, double k, double element_bytes);

// Returns the costs of a step from a machine's description alone: a roofline model of every product and every pass
// over memory.
//
//   product m × n × k   max(operations / rate, bytes / bandwidth, kernel_seconds). The rate falls as tiles leave units
//                       idle: tiles = ⌈m/T⌉·⌈n/T⌉·splits of k, waves = ⌈tiles / units⌉, rate = matmul_flops · tiles /
//                       (waves · units), with Machine's matmul_units and T = matmul_tile (step_costs.h). k is split
//                       (into parts of at least 4 T) if that shortens the product
//   attention           max(operations / attention_flops, bytes / bandwidth, kernel_seconds); scores stay on the chip
//   joint               the end of a sublayer: bias, dropout, gains, sum and LayerNorm in one pass: bytes / bandwidth,
//                       at least kernel_seconds
//   hyper-connections   in place of joint, for several residual streams (kernels/hyper_connection.h): the passes over
//                       them, and the product from which the mixing coefficients of each row are computed
// Kernels run one after the other. The kernels are those of the GPU path (fused joint, attention without stored scores,
// ReLU and bias inside products); for a CPU use a profile.
// Assumes sentences of kTypicalSentenceRows (pipeline/layout/pipeline_layout.h) and full micro-batches.
// Errors: InvalidArgument if the description lacks the rates (peak_tflops of its precision, memory_gb_per_second).
absl::StatusOr<std::unique_ptr<StepCosts>> MakeRooflineCosts(const Machine& machine);

struct CostFiles {
  std::string profile, machine;  // paths; empty: none

  bool empty() const { return profile.empty() && machine.empty(); }
};

// Adds --profile and --machine to `command`. `purpose` ends their help texts ("shown beside what was measured").
void AddCostFlags(Command command, const std::string& purpose, CostFiles& files);

// The contents of CostFiles.
struct LoadedCosts {
  std::optional<config::Profile> profile;
  std::optional<Machine> machine;

  // Returns the costs of a step of `model`, from the profile if there is one. Errors: those of MakeProfiledCosts and
  // MakeRooflineCosts. REQUIRES: a profile or a machine is set.
  absl::StatusOr<std::unique_ptr<StepCosts>> For(const ModelOptions& model) const;
};

// Errors: those of LoadProfile and LoadMachine.
absl::StatusOr<LoadedCosts> LoadCosts(const CostFiles& files);

// Sets in `options` what data.train determines (FollowCorpus, run_options.h), from its manifest alone.
// Errors: InvalidArgument if it cannot be read; FollowCorpus's.
absl::Status FollowPreparedCorpus(TrainOptions& options);

// The copies in a run's directory: StoredCosts returns the paths of those that exist; StoreCosts writes them.
CostFiles StoredCosts(const std::string& run_directory);
absl::Status StoreCosts(const CostFiles& files, const std::string& run_directory);

}  // namespace hadal
