#include "pipeline/checkpoint/model_settings.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layers/model_words.h"
#include "runtime/status_macros.h"
#include "runtime/strict_json.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

Json StackToJson(const StackMethod& stack) {
  return {{"norm", ToWord(kNormWords, stack.norm)},
          {"residual_gain", stack.residual_gain},
          {"omega", ToWord(kOmegaWords, stack.omega)},
          {"initial_omega", stack.initial_omega},
          {"branch_gain", stack.branch_gain},
          {"skip_gain", stack.skip_gain},
          {"layer_gain", stack.layer_gain},
          {"combine_layers", stack.combine_layers},
          {"learned_branch_gain", stack.learned_branch_gain},
          {"attention_inner_norm", stack.attention_inner_norm},
          {"attention_output_norm", stack.attention_output_norm},
          {"head_scale", stack.head_scale},
          {"ffn_inner_norm", stack.ffn_inner_norm},
          {"fixup_scalars", stack.fixup_scalars},
          {"linear_bias", stack.linear_bias},
          {"query_key_gain", stack.query_key_gain},
          {"value_gain", stack.value_gain},
          {"output_gain", stack.output_gain},
          {"cross_value_gain", stack.cross_value_gain},
          {"cross_output_gain", stack.cross_output_gain},
          {"ffn_gain", stack.ffn_gain},
          {"ffn_output_factor", stack.ffn_output_factor},
          {"depth_init", ToWord(kDepthInitWords, stack.depth_init)},
          {"embedding_gain", stack.embedding_gain},
          {"projection_gain", stack.projection_gain}};
}

// Takes fields out of an object and remembers the first thing that is wrong.
class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
    if (!object.is_object()) Fail("", "is no object");
  }

  void Read(const char* name, double& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_number()) return Fail(name, "is no number");
    value = field->get<double>();
  }
  void Read(const char* name, int32_t& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_number_integer()) return Fail(name, "is no whole number");
    const auto number = field->get<int64_t>();
    if (number < 0 || number > std::numeric_limits<int32_t>::max()) return Fail(name, "is out of range");
    value = static_cast<int32_t>(number);
  }
  void Read(const char* name, bool& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return Fail(name, "is neither true nor false");
    value = field->get<bool>();
  }
  template <typename Enum, size_t kWords>
  void Read(const char* name, Enum& value, const Word<Enum> (&words)[kWords]) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return Fail(name, "is no word");
    const Enum* const meaning = FindWord(words, field->get_ref<const std::string&>());
    if (meaning == nullptr) return Fail(name, "has an unknown value");
    value = *meaning;
  }
  // A field that settings written before it was there lack: then the value stays.
  template <typename... Value>
  void ReadIfPresent(const char* name, Value&... value) {
    if (object_.contains(name)) Read(name, value...);
  }
  const nlohmann::json* Find(const char* name) {
    ++fields_;
    if (!status_.ok()) return nullptr;
    const auto field = object_.find(name);
    if (field != object_.end()) return &*field;
    Fail(name, "is missing");
    return nullptr;
  }

  // OK when everything was right and no field is left over.
  absl::Status Done() {
    if (status_.ok() && object_.size() != fields_) Fail("", "has fields that this version does not know");
    return status_;
  }

 private:
  void Fail(const std::string& name, const std::string& what) {
    if (status_.ok()) status_ = absl::DataLossError(absl::StrCat("model settings: ", prefix_, name, " ", what));
  }

  const nlohmann::json& object_;
  std::string prefix_;
  size_t fields_ = 0;
  absl::Status status_;
};

absl::Status ParseStack(const nlohmann::json* object, const std::string& name, StackMethod& stack) {
  if (object == nullptr) return absl::OkStatus();  // the caller knows that it is missing
  FieldReader reader(*object, name + ".");
  reader.Read("norm", stack.norm, kNormWords);
  reader.Read("residual_gain", stack.residual_gain);
  reader.ReadIfPresent("omega", stack.omega, kOmegaWords);
  reader.ReadIfPresent("initial_omega", stack.initial_omega);
  reader.Read("branch_gain", stack.branch_gain);
  reader.Read("skip_gain", stack.skip_gain);
  reader.Read("layer_gain", stack.layer_gain);
  reader.ReadIfPresent("combine_layers", stack.combine_layers);
  reader.Read("learned_branch_gain", stack.learned_branch_gain);
  reader.Read("attention_inner_norm", stack.attention_inner_norm);
  reader.Read("attention_output_norm", stack.attention_output_norm);
  reader.Read("head_scale", stack.head_scale);
  reader.Read("ffn_inner_norm", stack.ffn_inner_norm);
  reader.ReadIfPresent("fixup_scalars", stack.fixup_scalars);
  reader.ReadIfPresent("linear_bias", stack.linear_bias);
  reader.Read("query_key_gain", stack.query_key_gain);
  reader.Read("value_gain", stack.value_gain);
  reader.Read("output_gain", stack.output_gain);
  reader.Read("cross_value_gain", stack.cross_value_gain);
  reader.Read("cross_output_gain", stack.cross_output_gain);
  reader.Read("ffn_gain", stack.ffn_gain);
  reader.ReadIfPresent("ffn_output_factor", stack.ffn_output_factor);
  reader.Read("depth_init", stack.depth_init, kDepthInitWords);
  reader.Read("embedding_gain", stack.embedding_gain);
  reader.ReadIfPresent("projection_gain", stack.projection_gain);
  return reader.Done();
}

void ParseSizes(FieldReader& reader, ModelOptions& options) {
  reader.Read("encoder_layers", options.encoder_layers);
  reader.Read("decoder_layers", options.decoder_layers);
  reader.Read("d_model", options.d_model);
  reader.Read("d_ff", options.d_ff);
  reader.Read("heads", options.heads);
  reader.Read("source_vocabulary", options.source_vocabulary);
  reader.Read("target_vocabulary", options.target_vocabulary);
  reader.Read("max_positions", options.max_positions);
}

void ParseChoices(FieldReader& reader, ModelOptions& options) {
  reader.Read("sharing", options.sharing, kSharingWords);
  reader.Read("distribution", options.distribution, kDistributionWords);
  reader.Read("branch_growth", options.branch_growth, kBranchGrowthWords);
}

}  // namespace

absl::StatusOr<ModelOptions> ParseModelSettings(const std::string& text) {
  constexpr int64_t kMostBytes = 1 << 16;
  HADAL_ASSIGN_OR_RETURN(const nlohmann::json json,
                         ParseStrictJson(text, {.max_bytes = kMostBytes, .max_depth = 3}, "model settings"));
  ModelOptions options;
  FieldReader reader(json, "");
  ParseSizes(reader, options);
  ParseChoices(reader, options);
  reader.Read("dropout", options.dropout);
  reader.Read("attention_dropout", options.attention_dropout);
  reader.Read("activation_dropout", options.activation_dropout);
  reader.Read("label_smoothing", options.label_smoothing);
  reader.Read("branch_growth_updates", options.branch_growth_updates);
  reader.Read("branch_growth_steepness", options.branch_growth_steepness);
  HADAL_RETURN_IF_ERROR(ParseStack(reader.Find("encoder"), "encoder", options.encoder));
  HADAL_RETURN_IF_ERROR(ParseStack(reader.Find("decoder"), "decoder", options.decoder));
  HADAL_RETURN_IF_ERROR(reader.Done());
  if (const absl::Status valid = ValidateModelOptions(options); !valid.ok()) {
    return absl::DataLossError(absl::StrCat("model settings: ", valid.message()));
  }
  return options;
}

std::string ModelSettingsJson(const ModelOptions& options) {
  const Json json = {{"encoder_layers", options.encoder_layers},
                     {"decoder_layers", options.decoder_layers},
                     {"d_model", options.d_model},
                     {"d_ff", options.d_ff},
                     {"heads", options.heads},
                     {"source_vocabulary", options.source_vocabulary},
                     {"target_vocabulary", options.target_vocabulary},
                     {"max_positions", options.max_positions},
                     {"sharing", ToWord(kSharingWords, options.sharing)},
                     {"dropout", options.dropout},
                     {"attention_dropout", options.attention_dropout},
                     {"activation_dropout", options.activation_dropout},
                     {"label_smoothing", options.label_smoothing},
                     {"encoder", StackToJson(options.encoder)},
                     {"decoder", StackToJson(options.decoder)},
                     {"distribution", ToWord(kDistributionWords, options.distribution)},
                     {"branch_growth", ToWord(kBranchGrowthWords, options.branch_growth)},
                     {"branch_growth_updates", options.branch_growth_updates},
                     {"branch_growth_steepness", options.branch_growth_steepness}};
  return json.dump();
}

}  // namespace hadal
