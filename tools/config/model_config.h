// Converts the model group of a config to ModelOptions, and a method's preset back to config fields.
//
// The residual method's preset is computed for the model's depth and then overridden field by field.
// Thread safety: pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "configs/run.pb.h"
#include "layers/model_options.h"

namespace hadal {

// Sets everything except vocabulary sizes and growth_updates, which may be a fraction of the run.
// REQUIRES: the schema allows the values. Errors: InvalidArgument with field, value and what is allowed.
absl::Status ReadModel(const config::Model& from, ModelOptions& to);

// Returns the config fields that would set `method`. Inverse of ReadModel.
config::StackResidual ToStackResidual(const StackMethod& method);
std::string DistributionName(WeightDistribution distribution);
std::string BranchGrowthName(BranchGrowth growth);

}  // namespace hadal
