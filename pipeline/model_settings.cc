#include "pipeline/model_settings.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "runtime/strict_json.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

Json StackToJson(const StackMethod& stack) {
  return {{"norm", stack.norm == NormPlacement::kPost ? "post" : "pre"},
          {"residual_gain", stack.residual_gain},
          {"query_key_gain", stack.query_key_gain},
          {"value_gain", stack.value_gain},
          {"output_gain", stack.output_gain},
          {"ffn_gain", stack.ffn_gain}};
}

const char* SharingName(EmbeddingSharing sharing) {
  switch (sharing) {
    case EmbeddingSharing::kNone:
      return "none";
    case EmbeddingSharing::kDecoder:
      return "decoder";
    case EmbeddingSharing::kAll:
      return "all";
  }
  return "";
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
  template <typename Enum, size_t kWords>
  void Read(const char* name, Enum& value, const std::array<std::pair<std::string_view, Enum>, kWords>& words) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return Fail(name, "is no word");
    for (const auto& [word, meaning] : words) {
      if (field->get_ref<const std::string&>() != word) continue;
      value = meaning;
      return;
    }
    Fail(name, "has an unknown value");
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
  using Word = std::pair<std::string_view, NormPlacement>;
  reader.Read("norm", stack.norm, std::array{Word("post", NormPlacement::kPost), Word("pre", NormPlacement::kPre)});
  reader.Read("residual_gain", stack.residual_gain);
  reader.Read("query_key_gain", stack.query_key_gain);
  reader.Read("value_gain", stack.value_gain);
  reader.Read("output_gain", stack.output_gain);
  reader.Read("ffn_gain", stack.ffn_gain);
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
  using Sharing = std::pair<std::string_view, EmbeddingSharing>;
  reader.Read("sharing", options.sharing,
              std::array{Sharing("none", EmbeddingSharing::kNone), Sharing("decoder", EmbeddingSharing::kDecoder),
                         Sharing("all", EmbeddingSharing::kAll)});
  using Distribution = std::pair<std::string_view, WeightDistribution>;
  reader.Read("distribution", options.distribution,
              std::array{Distribution("xavier_uniform", WeightDistribution::kXavierUniform),
                         Distribution("xavier_normal", WeightDistribution::kXavierNormal)});
  using Growth = std::pair<std::string_view, BranchGrowth>;
  reader.Read("branch_growth", options.branch_growth,
              std::array{Growth("linear", BranchGrowth::kLinear), Growth("constant", BranchGrowth::kConstant)});
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
  HADAL_RETURN_IF_ERROR(ParseStack(reader.Find("encoder"), "encoder", options.encoder));
  HADAL_RETURN_IF_ERROR(ParseStack(reader.Find("decoder"), "decoder", options.decoder));
  HADAL_RETURN_IF_ERROR(reader.Done());
  if (const absl::Status valid = ValidateModelOptions(options); !valid.ok()) {
    return absl::DataLossError(absl::StrCat("model settings: ", valid.message()));
  }
  return options;
}

std::string ModelSettingsJson(const ModelOptions& options) {
  const bool uniform = options.distribution == WeightDistribution::kXavierUniform;
  const Json json = {{"encoder_layers", options.encoder_layers},
                     {"decoder_layers", options.decoder_layers},
                     {"d_model", options.d_model},
                     {"d_ff", options.d_ff},
                     {"heads", options.heads},
                     {"source_vocabulary", options.source_vocabulary},
                     {"target_vocabulary", options.target_vocabulary},
                     {"max_positions", options.max_positions},
                     {"sharing", SharingName(options.sharing)},
                     {"dropout", options.dropout},
                     {"attention_dropout", options.attention_dropout},
                     {"activation_dropout", options.activation_dropout},
                     {"label_smoothing", options.label_smoothing},
                     {"encoder", StackToJson(options.encoder)},
                     {"decoder", StackToJson(options.decoder)},
                     {"distribution", uniform ? "xavier_uniform" : "xavier_normal"},
                     {"branch_growth", options.branch_growth == BranchGrowth::kLinear ? "linear" : "constant"},
                     {"branch_growth_updates", options.branch_growth_updates}};
  return json.dump();
}

}  // namespace hadal
