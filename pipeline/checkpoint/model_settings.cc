#include "pipeline/checkpoint/model_settings.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "layers/model_fields.h"
#include "runtime/json_fields.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

// A field's value as settings show it.
OrderedJson ToJson(double value) { return value; }
OrderedJson ToJson(int32_t value) { return value; }
OrderedJson ToJson(bool value) { return value; }
OrderedJson ToJson(const AdaptiveCutoffs& cutoffs) {
  return std::vector<int32_t>(cutoffs.ids.begin(), cutoffs.ids.begin() + cutoffs.count);
}
template <typename Enum, size_t kWords>
OrderedJson ToJson(Enum value, const Word<Enum> (&words)[kWords]) {
  return ToWord(words, value);
}
OrderedJson ToJson(const StackMethod& stack) {
  OrderedJson json;
  ForEachStackField([&](const char* name, auto member, FieldAge, const auto&... words) {
    json[name] = ToJson(stack.*member, words...);
  });
  return json;
}

OrderedJson ToJson(const Block& block) {
  OrderedJson json;
  ForEachBlockField(
      [&](const char* name, auto member, const auto&... words) { json[name] = ToJson(block.*member, words...); });
  return json;
}

void Read(JsonFields& fields, const char* name, double& value) { fields.Read(name, value); }
void Read(JsonFields& fields, const char* name, int32_t& value) { fields.Read(name, value, 0); }
void Read(JsonFields& fields, const char* name, bool& value) { fields.Read(name, value); }
void Read(JsonFields& fields, const char* name, AdaptiveCutoffs& cutoffs) {
  const nlohmann::json& list = fields.List(name);
  if (list.size() > cutoffs.ids.size()) return fields.Fail(name, absl::StrCat("has ", list.size(), " entries"));
  for (const nlohmann::json& entry : list) {
    const std::optional<int32_t> id = JsonInteger<int32_t>(entry);
    if (!id) return fields.Fail(name, "has an entry that is no token id");
    cutoffs.ids[cutoffs.count++] = *id;
  }
}
template <typename Enum, size_t kWords>
void Read(JsonFields& fields, const char* name, Enum& value, const Word<Enum> (&words)[kWords]) {
  fields.Read(name, value, words);
}
void Read(JsonFields& fields, const char* name, StackMethod& stack) {
  JsonFields of_stack = fields.Object(name);
  ForEachStackField([&](const char* field, auto member, FieldAge age, const auto&... words) {
    if (age == FieldAge::kFirst || of_stack.Has(field)) Read(of_stack, field, stack.*member, words...);
  });
  of_stack.NoOthers();
}
void Read(JsonFields& fields, const char* name, Block& block) {
  JsonFields of_block = fields.Object(name);
  ForEachBlockField([&](const char* field, auto member, const auto&... words) {
    if (of_block.Has(field)) Read(of_block, field, block.*member, words...);
  });
  of_block.NoOthers();
}

}  // namespace

absl::StatusOr<ModelOptions> ParseModelSettings(const std::string& text) {
  constexpr int64_t kMostBytes = 1 << 16;
  HADAL_ASSIGN_OR_RETURN(const nlohmann::json json,
                         ParseStrictJson(text, {.max_bytes = kMostBytes, .max_depth = 3}, "model settings"));
  ModelOptions options;
  absl::Status status;
  JsonFields fields(json, "", status);
  ForEachModelField([&](const char* name, auto member, FieldAge age, const auto&... words) {
    if (age == FieldAge::kFirst || fields.Has(name)) Read(fields, name, options.*member, words...);
  });
  fields.NoOthers();
  // Two rules are of new runs alone: models of earlier versions, which did not have them, can be read.
  ModelOptions checked = options;
  const bool added_as_it_is = options.block.positions == Positions::kLearned || !options.block.scale_embedding;
  if (added_as_it_is && options.base_width >= 1 && options.base_width <= 65536) checked.base_width = 0;
  for (StackMethod* stack : {&checked.encoder, &checked.decoder}) {
    if (stack->omega == Omega::kProfiled) stack->omega = Omega::kConstant;
  }
  if (status.ok()) status = ValidateModelOptions(checked);
  if (!status.ok()) return DataLossError("model settings: ", status.message());
  return options;
}

std::string ModelSettingsJson(const ModelOptions& options) {
  OrderedJson json;
  ForEachModelField([&](const char* name, auto member, FieldAge, const auto&... words) {
    json[name] = ToJson(options.*member, words...);
  });
  // As before the field: older versions read models with the default block.
  if (options.block == Block()) json.erase("block");
  if (options.mask_token < 0) json.erase("mask_token");
  return json.dump();
}

absl::StatusOr<ModelPlan> PlanOfCheckpoint(const CheckpointManifest& manifest, const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(const ModelOptions options, ParseModelSettings(manifest.model_settings));
  ModelPlan plan = ModelPlan::Make(options);
  HADAL_RETURN_IF_ERROR(CompareParameters(manifest.parameters, DescribeParameters(plan)));
  if (plan.Hash() != manifest.plan_hash) {
    return FailedPreconditionError(directory, " was written for a model plan of hash ", manifest.plan_hash,
                                   "; this version makes one of hash ", plan.Hash(),
                                   " from its settings. Use the version that wrote it.");
  }
  return plan;
}

}  // namespace hadal
