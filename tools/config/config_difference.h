// Compares two configs by their effective values (resolved_config.h).
//
// A default that is written out is not a difference; a gain that follows from another depth is one. Which fields a
// resumed run may change silently is the schema's `may_change` option (configs/run.proto), with one exception:
// stop.steps may not change if the learning rate is "polynomial". Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/run.pb.h"

namespace hadal {

struct ConfigDifference {
  std::string field;
  std::string before;
  std::string after;
  bool may_change = false;  // a resumed run may change it silently
};

// In the schema's order.
// Errors: MakeRunOptions', of either config.
absl::StatusOr<std::vector<ConfigDifference>> CompareConfigs(const config::RunConfig& before,
                                                             const config::RunConfig& after);

// "  FIELD: BEFORE -> AFTER\n" for each difference.
std::string DifferencesText(const std::vector<ConfigDifference>& differences);

// Returns the text of the differences that may change results, for which a resume requires --accept-changes; empty if
// there are none.
// Errors: MakeRunOptions', of either config.
absl::StatusOr<std::string> DiffConfigs(const config::RunConfig& before, const config::RunConfig& after);

}  // namespace hadal
