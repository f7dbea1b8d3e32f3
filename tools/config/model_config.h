// Converts the model group of a config to ModelOptions, and a method's preset back to config fields.
//
// The preset of the residual method is computed for the model's depth; then fields that the config sets replace its
// values.
// Thread safety: pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "configs/run.pb.h"
#include "layers/model_options.h"

namespace hadal {

// Sets the fields of `to` that the model group gives. It leaves those of the corpus (vocabulary sizes, special
// tokens, document_mask) and branch_growth_updates, which the config may give as a fraction of the run.
// REQUIRES: the schema allows the values. Errors: InvalidArgument with field, value and what is allowed.
absl::Status ReadModel(const config::Model& from, ModelOptions& to);

// Return the config fields or words that ReadModel reads as the given values.
config::StackResidual ToStackResidual(const StackMethod& method);
config::Block ToBlock(const Block& block);
std::string DistributionName(WeightDistribution distribution);
std::string BranchGrowthName(BranchGrowth growth);

}  // namespace hadal
