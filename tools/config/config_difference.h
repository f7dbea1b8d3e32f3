// Compares two configs by their effective values (resolved_config.h).
//
// Writing a default value explicitly is not a difference. A derived value (e.g. a gain that depends on the depth) is
// compared like any other field. A resumed run may change fields with the schema's `may_change` option
// (configs/run.proto) without --accept-changes, with one exception: stop.steps may not change if the learning rate is
// "polynomial". Thread safety: pure.
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

// Returns the differences in the schema's order.  Errors: those of MakeRunOptions, for either config.
absl::StatusOr<std::vector<ConfigDifference>> CompareConfigs(const config::RunConfig& before,
                                                             const config::RunConfig& after);

// "  FIELD: BEFORE -> AFTER\n" for each difference.
std::string DifferencesText(const std::vector<ConfigDifference>& differences);

// Returns the text of the differences that may change results, for which a resume requires --accept-changes; empty if
// there are none.  Errors: those of MakeRunOptions, for either config.
absl::StatusOr<std::string> DiffConfigs(const config::RunConfig& before, const config::RunConfig& after);

}  // namespace hadal
