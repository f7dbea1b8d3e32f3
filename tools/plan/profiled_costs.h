// The costs of a step as measured by `hadal bench profile` (written by tools/bench/bench_profile.h, described in
// configs/machine.proto).
//
// A sublayer costs what its kind cost in the profile, whatever its depth. Messages were measured on this host; a
// machine's description can give the links between nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// The kind of a sublayer as profiles name it: "decoder_self_attention".
std::string ProfiledKind(const SublayerRecord& record);

// The word of residual_mixing of the stack with more residual streams.
std::string ResidualMixing(const ModelOptions& model);

// Errors: those of LoadMessage (config_loading.h); InvalidArgument for a profile without costs.
absl::StatusOr<config::Profile> LoadProfile(const std::string& file);

// `machine`: gives the links between nodes and whether transfers overlap computation; nullopt: all links are the
// profile's, and none overlaps.
// Errors: InvalidArgument if another model than `model` was measured, with the first difference.
absl::StatusOr<std::unique_ptr<StepCosts>> MakeProfiledCosts(const config::Profile& profile, const ModelOptions& model,
                                                             const std::optional<Machine>& machine);

}  // namespace hadal
