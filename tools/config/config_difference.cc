#include "tools/config/config_difference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/config/resolved_config.h"

namespace hadal {
namespace {

// A value, with the field it is derived from if that is an alternative setting: "500 (warmup_fraction 0.1 of 5000
// steps)".
std::string Shown(const EffectiveValue& value) {
  const bool given_otherwise =
      value.origin == EffectiveValue::Origin::kDerived && value.field->real_containing_oneof() != nullptr;
  return given_otherwise ? absl::StrCat(value.value, " (", value.from, ")") : value.value;
}

}  // namespace

absl::StatusOr<std::vector<ConfigDifference>> CompareConfigs(const config::RunConfig& before,
                                                             const config::RunConfig& after) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<EffectiveValue> old_values, EffectiveValues(before));
  HADAL_ASSIGN_OR_RETURN(const std::vector<EffectiveValue> new_values, EffectiveValues(after));
  HADAL_CHECK_EQ(old_values.size(), new_values.size());
  const bool end_shapes_rate =
      before.learning_rate().schedule() == "polynomial" || after.learning_rate().schedule() == "polynomial";
  std::vector<ConfigDifference> differences;
  for (size_t i = 0; i < old_values.size(); ++i) {
    if (old_values[i].value == new_values[i].value) continue;
    const bool may_change =
        MayChangeOnResume(*old_values[i].field) && !(old_values[i].path == "stop.steps" && end_shapes_rate);
    differences.push_back({old_values[i].path, Shown(old_values[i]), Shown(new_values[i]), may_change});
  }
  return differences;
}

std::string DifferencesText(const std::vector<ConfigDifference>& differences) {
  std::string text;
  for (const ConfigDifference& difference : differences) {
    absl::StrAppend(&text, "  ", difference.field, ": ", difference.before, " -> ", difference.after, "\n");
  }
  return text;
}

absl::StatusOr<std::string> DiffConfigs(const config::RunConfig& before, const config::RunConfig& after) {
  HADAL_ASSIGN_OR_RETURN(std::vector<ConfigDifference> differences, CompareConfigs(before, after));
  differences.erase(std::remove_if(differences.begin(), differences.end(), [](const auto& d) { return d.may_change; }),
                    differences.end());
  return DifferencesText(differences);
}

}  // namespace hadal
