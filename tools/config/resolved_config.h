// The resolved config: every field with the value the run really uses, as `hadal config show` prints it and a run
// directory keeps it.
//
// A field has its value from the config, from the schema's default, or from another field: the residual method and the
// depth give the gains, a fraction of the run gives updates. Values of the last kind are written as comments, so that a
// resolved config, loaded again and changed ("model.encoder_layers"), does not carry constants of another depth.
// Order: the schema's. Loading the text gives the same options.
// Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/run.pb.h"
#include "tools/config/config_schema.h"

namespace hadal {

// One field that is no group.
struct EffectiveValue {
  enum class Origin { kSet, kDefault, kDerived, kAbsent };

  std::string path;
  const FieldDescriptor* field = nullptr;
  Origin origin = Origin::kAbsent;
  std::string value;  // as text format writes it; "not set" when absent
  std::string from;   // what a derived value follows from
};

// Every field of the schema, in its order.
// Errors: MakeRunOptions'.
absl::StatusOr<std::vector<EffectiveValue>> EffectiveValues(const config::RunConfig& config);

// The text of config.resolved.textproto.
// Errors: MakeRunOptions'.
absl::StatusOr<std::string> ResolvedConfigText(const config::RunConfig& config);

}  // namespace hadal
