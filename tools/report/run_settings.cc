#include "tools/report/run_settings.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/run_directory.h"
#include "tools/config/config_schema.h"

namespace hadal {
namespace {

using Origin = EffectiveValue::Origin;

// Groups that say how, how long and how much at a time a run computes, and what it records, but not what.
constexpr const char* kLayoutGroups[] = {"pipeline.",   "batch.",      "stop.",   "logging.",
                                         "validation.", "checkpoint.", "decode.", "health."};

bool IsChosen(const EffectiveValue& value) {
  return value.origin == Origin::kSet && value.value != DefaultText(*value.field);
}

}  // namespace

std::vector<std::vector<std::string>> SettingsTable(const std::vector<RunRecord>& runs) {
  const auto known = std::find_if(runs.begin(), runs.end(), [](const RunRecord& run) { return !run.config.empty(); });
  if (known == runs.end()) return {};
  std::vector<std::vector<std::string>> rows = {{"field"}};
  for (const RunRecord& run : runs) rows[0].push_back(run.name);
  for (size_t field = 0; field < known->config.size(); ++field) {
    std::vector<std::string> row = {known->config[field].path};
    bool shown = false;
    for (const RunRecord& run : runs) {
      row.push_back(run.config.empty() ? "-" : run.config[field].value);
      if (run.config.empty()) continue;
      shown |= IsChosen(run.config[field]) || run.config[field].value != known->config[field].value;
    }
    if (shown) rows.push_back(std::move(row));
  }
  return rows;
}

std::string DifferenceBesideLayout(const RunRecord& a, const RunRecord& b) {
  constexpr size_t kMost = 3;
  for (const RunRecord* run : {&a, &b}) {
    if (run->config.empty()) {
      return absl::StrCat(run->directory, "/", kResolvedConfigName, " cannot be read, and may differ in anything");
    }
  }
  std::vector<std::string> differences;
  for (size_t field = 0; field < a.config.size(); ++field) {
    const EffectiveValue &one = a.config[field], &two = b.config[field];
    const bool derived = one.origin == Origin::kDerived && two.origin == Origin::kDerived;
    const bool layout = std::any_of(std::begin(kLayoutGroups), std::end(kLayoutGroups),
                                    [&](const char* group) { return absl::StartsWith(one.path, group); });
    if (one.value == two.value || derived || layout) continue;
    differences.push_back(absl::StrCat(one.path, " (", one.value, ", ", two.value, ")"));
  }
  if (differences.empty()) return "";
  const size_t more = differences.size() - std::min(differences.size(), kMost);
  differences.resize(differences.size() - more);
  return absl::StrCat(a.directory, " and ", b.directory, " differ in ", absl::StrJoin(differences, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace hadal
