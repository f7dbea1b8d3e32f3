#include "pipeline/model_settings.h"

#include <nlohmann/json.hpp>

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

}  // namespace

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
