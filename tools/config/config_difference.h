// Where two configs differ in what a run really uses.
//
// Compared are effective values (resolved_config.h): a default written out is no difference, a gain that follows from
// another depth is one. The table of what a resumed run may change without being asked is the schema's `may_change`
// option (configs/run.proto); one field more depends on its company: stop.steps counts when the learning rate is
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

// In the schema's order.
// Errors: MakeRunOptions', of either config.
absl::StatusOr<std::vector<ConfigDifference>> CompareConfigs(const config::RunConfig& before,
                                                             const config::RunConfig& after);

// "  FIELD: BEFORE -> AFTER\n" for each difference.
std::string DifferencesText(const std::vector<ConfigDifference>& differences);

// What a resume has to ask about: the text of the differences that may change results, empty when there are none.
// Errors: MakeRunOptions', of either config.
absl::StatusOr<std::string> DiffConfigs(const config::RunConfig& before, const config::RunConfig& after);

}  // namespace hadal
