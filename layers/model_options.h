// What a person may choose about a model, as plain values (the config schema stops at tools/).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

enum class NormPlacement : int32_t {
  kPost,  // x' = LN(r·x + b·F(x))
  kPre,   // x' = x + b·F(LN(x)), and one norm after each stack
};

enum class EmbeddingSharing : int32_t {
  kNone,     // source, target and output matrices apart
  kDecoder,  // target embedding = output projection
  kAll,      // one matrix for source, target and output
};

enum class WeightDistribution : int32_t { kXavierUniform, kXavierNormal };

enum class BranchGrowth : int32_t {
  kConstant,  // b = 1
  kLinear,    // b = min(1, t / T), t = 1-based update (BranchNorm, arXiv 2305.02790 eq. 8)
};

// What a residual method fixes for one stack; a preset fills it (method_presets.h), fields may be overridden one by
// one.
struct StackMethod {
  NormPlacement norm = NormPlacement::kPost;
  double residual_gain = 1;  // r; DeepNorm's alpha
  // Xavier gains. The base initialisation is fairseq's (q, k, v as one fused matrix: 1/sqrt(2) each).
  double query_key_gain = 0.70710678118654752;
  double value_gain = 0.70710678118654752;  // W_v; DeepNorm's beta
  double output_gain = 1;                   // W_o of attention; DeepNorm's beta
  double ffn_gain = 1;                      // W_1 and W_2; DeepNorm's beta
};

struct ModelOptions {
  int32_t encoder_layers = 6;
  int32_t decoder_layers = 6;
  int32_t d_model = 512;
  int32_t d_ff = 2048;
  int32_t heads = 8;
  int32_t source_vocabulary = 0;  // rows of the source embedding, special tokens included
  int32_t target_vocabulary = 0;
  int32_t max_positions = 1024;  // longest sentence, </s> included
  EmbeddingSharing sharing = EmbeddingSharing::kAll;

  double dropout = 0.1;           // on sublayer outputs and the embedding sum
  double attention_dropout = 0;   // on attention probabilities
  double activation_dropout = 0;  // on the feed-forward hidden layer
  double label_smoothing = 0.1;

  StackMethod encoder;
  StackMethod decoder;
  WeightDistribution distribution = WeightDistribution::kXavierUniform;
  BranchGrowth branch_growth = BranchGrowth::kConstant;
  double branch_growth_updates = 4000;  // T
};

// InvalidArgument naming the field, its value and the allowed range.
absl::Status ValidateModelOptions(const ModelOptions& options);

// The residual methods: "post_ln", "pre_ln", "deepnorm", "branchnorm".
enum class ResidualMethod : int32_t { kPostLn, kPreLn, kDeepNorm, kBranchNorm };
absl::StatusOr<ResidualMethod> ParseResidualMethod(const std::string& name);
std::string ResidualMethodName(ResidualMethod method);

// Fills encoder, decoder, distribution and branch_growth (not T) from the method and the two depths.
// Sources: DeepNet (arXiv 2203.00555) figure 2; BranchNorm (arXiv 2305.02790) section 4.1: DeepNorm's init, no alpha.
void ApplyResidualMethod(ResidualMethod method, ModelOptions& options);

}  // namespace hadal
