// The model of a config: from its words and gains to ModelOptions, and a method's preset back into the fields that
// would override it.
//
// The residual method is applied for the model's depth and then overridden field by field.
// Thread safety: pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "configs/run.pb.h"
#include "layers/model_options.h"

namespace hadal {

// All of it but vocabulary sizes and growth_updates, which may be a fraction of the run.
// REQUIRES: the values are those the schema allows. Errors: InvalidArgument with field, value and what is allowed.
absl::Status ReadModel(const config::Model& from, ModelOptions& to);

// The method's preset, without overrides, as the fields that would override it. Inverse of what ReadModel reads.
config::StackResidual ToStackResidual(const StackMethod& method);
std::string DistributionName(WeightDistribution distribution);
std::string BranchGrowthName(BranchGrowth growth);

}  // namespace hadal
