// The costs of a step as measured by `hadal bench profile` (written by tools/bench/bench_profile.h, described in
// configs/machine.proto).
//
// A sublayer costs what the profile has for its kind, so a profile of few layers can plan a model of many. The
// profile's messages were measured between the ranks of one host; the description of a machine (Machine) can give the
// links between nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// Returns the name that profiles have for the kind of a sublayer, for example "decoder_self_attention".
std::string ProfiledKind(const SublayerRecord& record);

// Returns the config's word for residual_mixing, of the stack with more residual streams (if equal, of the decoder).
std::string ResidualMixing(const ModelOptions& model);

// Errors: those of LoadMessage (config_loading.h); InvalidArgument for a profile without costs.
absl::StatusOr<config::Profile> LoadProfile(const std::string& file);

// `machine`: gives the links between nodes and whether transfers overlap computation; nullopt: all links are the
// profile's, and no transfer overlaps computation.
// Errors: InvalidArgument if another model than `model` was measured, with the first difference.
absl::StatusOr<std::unique_ptr<StepCosts>> MakeProfiledCosts(const config::Profile& profile, const ModelOptions& model,
                                                             const std::optional<Machine>& machine);

}  // namespace hadal
