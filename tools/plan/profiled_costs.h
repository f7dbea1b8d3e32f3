// Costs of a step from what `hadal bench profile` measured (tools/bench/bench_profile.h wrote it, configs/machine.proto
// describes it).
//
// A sublayer costs what its kind did, whatever its depth. What was measured are this host's messages; a machine's
// description may say what lies between its nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "tools/plan/machine.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// "decoder_self_attention": the kind of a sublayer as profiles name it.
std::string ProfiledKind(const SublayerRecord& record);

// Errors: those of LoadMessage (config_loading.h); InvalidArgument for a profile without costs.
absl::StatusOr<config::Profile> LoadProfile(const std::string& file);

// `machine`: whose links between nodes, and overlap, to plan with.
// Errors: InvalidArgument where another model was measured than `model`, with the first difference.
absl::StatusOr<std::unique_ptr<StepCosts>> MakeProfiledCosts(const config::Profile& profile, const ModelOptions& model,
                                                             const std::optional<Machine>& machine);

}  // namespace hadal
