#include "tools/config/resolved_config.h"

#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/config/config_value.h"
#include "tools/config/model_config.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

struct Derived {
  std::string value;
  std::string from;
};
using DerivedValues = std::map<std::string, Derived>;  // by path

void DeriveStack(const std::string& path, const StackMethod& method, const std::string& from, DerivedValues& derived) {
  const config::StackResidual residual = ToStackResidual(method);
  const MessageDescriptor& descriptor = *residual.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    derived[FieldPath(path, descriptor.field(i)->name())] = {ValueText(residual, *descriptor.field(i)), from};
  }
}

// Values derived from other fields, including those of fields that the config sets, which keep their own value.
DerivedValues Derive(const config::RunConfig& config, const TrainOptions& options) {
  DerivedValues derived;
  const config::Residual& residual = config.model().residual();
  const ModelOptions& model = options.model;
  const std::string depth = model.translates()
                                ? absl::StrCat(model.encoder_layers, "-", model.decoder_layers, " layers")
                            : model.has_encoder() ? absl::StrCat(model.encoder_layers, " layers, encoder-only")
                                                  : absl::StrCat(model.decoder_layers, " layers, decoder-only");
  const std::string method = absl::StrCat("method \"", residual.method(), "\" at ", depth);
  if (options.model.has_encoder()) DeriveStack("model.residual.encoder", options.model.encoder, method, derived);
  if (model.has_decoder()) DeriveStack("model.residual.decoder", options.model.decoder, method, derived);
  derived["model.residual.distribution"] = {absl::StrCat("\"", DistributionName(options.model.distribution), "\""),
                                            method};
  derived["model.residual.branch_growth"] = {absl::StrCat("\"", BranchGrowthName(options.model.branch_growth), "\""),
                                             method};
  if (DefaultSteepness(options.model.branch_growth) > 0) {
    derived["model.residual.growth_steepness"] = {
        absl::StrCat(options.model.branch_growth_steepness),
        absl::StrCat("branch_growth \"", BranchGrowthName(options.model.branch_growth), "\"")};
  }
  const auto derive_updates = [&](const std::string& of, double fraction, double updates) {
    derived[of + "_updates"] = {
        absl::StrCat(static_cast<int64_t>(updates)),
        absl::StrCat(of.substr(of.rfind('.') + 1), "_fraction ", fraction, " of ", options.stop.steps, " steps")};
  };
  if (residual.has_growth_fraction() && options.model.branch_growth != BranchGrowth::kConstant) {
    derive_updates("model.residual.growth", residual.growth_fraction(), options.model.branch_growth_updates);
  }
  const config::LearningRate& rate = config.learning_rate();
  if (rate.has_warmup_fraction()) {
    derive_updates("learning_rate.warmup", rate.warmup_fraction(), options.rate.warmup_updates);
  }
  if (rate.has_decay_fraction()) {
    derive_updates("learning_rate.decay", rate.decay_fraction(), options.rate.decay_updates);
  }
  if (options.pipeline.recompute_auto && !config.pipeline().has_recompute_auto()) {
    derived["pipeline.recompute_every"] = {"chosen", "memory_limit_bytes"};
    derived["pipeline.recompute_auto"] = {"true", "memory_limit_bytes"};
  }
  return derived;
}

// A field of a oneof has its default only if no other member is set.
bool HasDefault(const ConfigMessage& message, const FieldDescriptor& field) {
  const auto* alternatives = field.real_containing_oneof();
  if (alternatives != nullptr && message.GetReflection()->HasOneof(message, alternatives)) return false;
  return field.has_default_value() || field.is_repeated();
}

EffectiveValue Evaluate(const ConfigMessage& message, const FieldDescriptor& field, const std::string& path,
                        const DerivedValues& derived) {
  using Origin = EffectiveValue::Origin;
  const auto& reflection = *message.GetReflection();
  const bool is_set =
      field.is_repeated() ? reflection.FieldSize(message, &field) > 0 : reflection.HasField(message, &field);
  if (is_set) return {path, &field, Origin::kSet, ValueText(message, field), ""};
  if (const auto found = derived.find(path); found != derived.end()) {
    return {path, &field, Origin::kDerived, found->second.value, found->second.from};
  }
  if (HasDefault(message, field)) return {path, &field, Origin::kDefault, ValueText(message, field), ""};
  return {path, &field, Origin::kAbsent, "not set", ""};
}

// An unset group is visited as its default instance, whose fields are all unset.
void Collect(const ConfigMessage& message, const std::string& parent, const DerivedValues& derived,
             std::vector<EffectiveValue>& values) {
  const MessageDescriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string path = FieldPath(parent, field.name());
    if (IsMessage(field)) {
      Collect(message.GetReflection()->GetMessage(message, &field), path, derived, values);
    } else {
      values.push_back(Evaluate(message, field, path, derived));
    }
  }
}

// Writes leaves in order, opening and closing groups as their paths require.
class GroupedText {
 public:
  void Add(const EffectiveValue& value) {
    std::vector<std::string> groups = absl::StrSplit(value.path, '.');
    const std::string name = groups.back();
    groups.pop_back();
    size_t common = 0;
    while (common < groups.size() && common < open_.size() && groups[common] == open_[common]) ++common;
    CloseTo(common);
    for (size_t i = common; i < groups.size(); ++i) {
      absl::StrAppend(&text_, Indent(), groups[i], " {\n");
      open_.push_back(groups[i]);
    }
    switch (value.origin) {
      case EffectiveValue::Origin::kSet:
      case EffectiveValue::Origin::kDefault:
        absl::StrAppend(&text_, Indent(), name, ": ", value.value, "\n");
        return;
      case EffectiveValue::Origin::kDerived:
        absl::StrAppend(&text_, Indent(), "# ", name, ": ", value.value, "  (from ", value.from, ")\n");
        return;
      case EffectiveValue::Origin::kAbsent:
        absl::StrAppend(&text_, Indent(), "# ", name, ": not set\n");
        return;
    }
  }

  std::string Finish() {
    CloseTo(0);
    return text_;
  }

 private:
  std::string Indent() const { return std::string(2 * open_.size(), ' '); }
  void CloseTo(size_t depth) {
    while (open_.size() > depth) {
      open_.pop_back();
      absl::StrAppend(&text_, Indent(), "}\n");
    }
  }

  std::string text_;
  std::vector<std::string> open_;
};

// A value, with the field it is derived from if that is an alternative setting: "500 (warmup_fraction 0.1 of 5000
// steps)".
std::string Shown(const EffectiveValue& value) {
  const bool given_otherwise =
      value.origin == EffectiveValue::Origin::kDerived && value.field->real_containing_oneof() != nullptr;
  return given_otherwise ? absl::StrCat(value.value, " (", value.from, ")") : value.value;
}

}  // namespace

absl::StatusOr<std::vector<EffectiveValue>> EffectiveValues(const config::RunConfig& config) {
  HADAL_ASSIGN_OR_RETURN(const RunOptions options, MakeRunOptions(config));
  std::vector<EffectiveValue> values;
  Collect(config, "", Derive(config, options.train), values);
  return values;
}

absl::StatusOr<std::string> ResolvedConfigText(const config::RunConfig& config) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<EffectiveValue> values, EffectiveValues(config));
  GroupedText text;
  for (const EffectiveValue& value : values) text.Add(value);
  return absl::StrCat(
      "# proto-message: hadal.config.RunConfig\n",
      "# Every field of the run. A commented field is not set here; its value is derived from other fields.\n",
      text.Finish());
}

absl::StatusOr<std::vector<ConfigDifference>> CompareConfigs(const config::RunConfig& before,
                                                             const config::RunConfig& after) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<EffectiveValue> old_values, EffectiveValues(before));
  HADAL_ASSIGN_OR_RETURN(const std::vector<EffectiveValue> new_values, EffectiveValues(after));
  HADAL_CHECK_EQ(old_values.size(), new_values.size());
  const auto ends_with_run = [](const config::RunConfig& config) {
    const std::string& schedule = config.learning_rate().schedule();
    return schedule == "polynomial" || schedule == "cosine" || schedule == "wsd";
  };
  const bool end_shapes_rate = ends_with_run(before) || ends_with_run(after);
  std::vector<ConfigDifference> differences;
  for (size_t i = 0; i < old_values.size(); ++i) {
    if (old_values[i].value == new_values[i].value) continue;
    if (new_values[i].path == "batch.sum_groups" && new_values[i].value == "0") continue;  // takes the run's
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

absl::StatusOr<std::string> ChangesToAccept(const config::RunConfig& before, const config::RunConfig& after) {
  HADAL_ASSIGN_OR_RETURN(std::vector<ConfigDifference> differences, CompareConfigs(before, after));
  std::erase_if(differences, [](const ConfigDifference& difference) { return difference.may_change; });
  return DifferencesText(differences);
}

}  // namespace hadal
