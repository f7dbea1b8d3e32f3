// The resolved config: every field with its effective value, as printed by `hadal config show` and stored in the run
// directory.
//
// A value comes from the config, from the schema's default, or is derived from other fields: the residual method and
// the depth give the gains; a fraction of the run gives a number of updates. Derived values are written as comments, so
// that a resolved config that is loaded and changed ("model.encoder_layers") does not keep constants of another depth.
// Fields are in the schema's order. Loading the text gives the same options.
// Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/run.pb.h"
#include "tools/config/config_schema.h"

namespace hadal {

// A field that is not a group.
struct EffectiveValue {
  // Set in the config; the schema's default; derived from other fields; without any value.
  enum class Origin { kSet, kDefault, kDerived, kAbsent };

  std::string path;
  const FieldDescriptor* field = nullptr;
  Origin origin = Origin::kAbsent;
  std::string value;  // in text format; "not set" if absent
  std::string from;   // what a derived value is derived from
};

// Every field of the schema, in its order.  Errors: those of MakeRunOptions.
absl::StatusOr<std::vector<EffectiveValue>> EffectiveValues(const config::RunConfig& config);

// The text of config.resolved.textproto.  Errors: those of MakeRunOptions.
absl::StatusOr<std::string> ResolvedConfigText(const config::RunConfig& config);

struct ConfigDifference {
  std::string field;
  std::string before;
  std::string after;
  bool may_change = false;  // a resumed run may change it without --accept-changes
};

// Compares two configs by their effective values: writing a default value explicitly is not a difference; a derived
// value (e.g. a gain that depends on the depth) is compared like any other field. Returns all differences in the
// schema's order. may_change is the schema's option of that name (configs/run.proto), except that stop.steps may not
// change if a learning rate depends on the run's length (EndsWithRun, train_options.h). Errors: MakeRunOptions'.
absl::StatusOr<std::vector<ConfigDifference>> CompareConfigs(const config::RunConfig& before,
                                                             const config::RunConfig& after);

// "  FIELD: BEFORE -> AFTER\n" for each difference.
std::string DifferencesText(const std::vector<ConfigDifference>& differences);

// Returns DifferencesText of the differences without may_change, for which a resume requires --accept-changes; empty if
// there are none. Errors: those of MakeRunOptions, for either config.
absl::StatusOr<std::string> ChangesToAccept(const config::RunConfig& before, const config::RunConfig& after);

}  // namespace hadal
