// Makes the model's list from its options: ModelPlan::Make.
#include <cmath>
#include <utility>

#include "kernels/hyper_connection.h"
#include "kernels/unfold.h"
#include "layers/adaptive_bands.h"
#include "layers/model_plan.h"

namespace hadal {
namespace {

// Builds both lists from front to back. A parameter joins the sublayer that was added last.
class PlanBuilder {
 public:
  explicit PlanBuilder(const ModelOptions& options) : options_(options) { plan_.options = options; }

  ModelPlan Build() {
    const int32_t source_table = 0;
    int32_t target_table = source_table;
    if (options_.has_encoder()) AddEncoder();
    if (options_.has_decoder()) target_table = AddDecoder(source_table);
    AddSublayer(SublayerKind::kOutputHead, options_.has_decoder() ? Stack::kDecoder : Stack::kEncoder, -1);
    if (options_.sharing != EmbeddingSharing::kNone) plan_.sublayers.back().table = target_table;
    AddHead();
    if (!options_.has_decoder()) AddMaskedHead();
    return std::move(plan_);
  }

 private:
  // Returns the target embedding's table.
  int32_t AddDecoder(int32_t source_table) {
    AddSublayer(SublayerKind::kTargetEmbedding, Stack::kDecoder, -1);
    if (options_.shares_source()) {
      plan_.sublayers.back().table = source_table;
    } else {
      AddEmbedding(options_.target_vocabulary, options_.sharing != EmbeddingSharing::kNone);
    }
    const int32_t table = plan_.sublayers.back().table;
    AddPositions();
    for (int32_t layer = 0; layer < options_.decoder_layers; ++layer) {
      AddSelfAttention(Stack::kDecoder, layer);
      if (options_.has_encoder()) AddCrossAttention(layer);
      AddFeedForward(Stack::kDecoder, layer, layer + 1 == options_.decoder_layers);
    }
    return table;
  }

  const StackMethod& Method(Stack stack) const {
    return stack == Stack::kEncoder ? options_.encoder : options_.decoder;
  }

  void AddEncoder() {
    AddSublayer(SublayerKind::kSourceEmbedding, Stack::kEncoder, -1);
    if (options_.reads_speech()) {
      AddConvolutions();
    } else {
      AddEmbedding(options_.has_decoder() ? options_.source_vocabulary : options_.target_vocabulary,
                   options_.sharing == EmbeddingSharing::kAll);
      AddPositions();
    }
    for (int32_t layer = 0; layer < options_.encoder_layers; ++layer) {
      AddSelfAttention(Stack::kEncoder, layer);
      AddFeedForward(Stack::kEncoder, layer, layer + 1 == options_.encoder_layers);
    }
  }

  // Of an embedding or the head (layer -1): as the stack's last layer.
  NormPlacement NormOf(Stack stack, int32_t layer) const {
    const StackMethod& method = Method(stack);
    const int32_t layers = stack == Stack::kEncoder ? options_.encoder_layers : options_.decoder_layers;
    // 0.29 of 100 layers are 29, although the product of the doubles is below that.
    const auto post_layers = static_cast<int32_t>(std::floor(method.post_norm_share * layers + 1e-9));
    const bool below = (layer < 0 ? layers - 1 : layer) < post_layers;
    return below ? NormPlacement::kPost : method.norm;
  }

  void AddSublayer(SublayerKind kind, Stack stack, int32_t layer) {
    SublayerRecord& s = plan_.sublayers.emplace_back();
    s.kind = kind;
    s.stack = stack;
    s.layer = layer;
    const StackMethod& method = Method(stack);
    s.norm = NormOf(stack, layer);
    const bool last_of_layer = kind == SublayerKind::kFeedForward;
    const double layer_gain = last_of_layer ? method.layer_gain : 1;
    s.residual_gain = static_cast<float>(layer_gain * method.residual_gain);
    s.branch_gain = static_cast<float>(layer_gain * method.branch_gain);
    s.skip_gain = last_of_layer ? static_cast<float>(method.skip_gain) : 0;
    s.branch_growth = options_.branch_growth;
    if (s.branch_growth != BranchGrowth::kConstant) {
      s.branch_growth_updates = static_cast<float>(options_.branch_growth_updates);
    }
    if (DefaultSteepness(s.branch_growth) > 0) {
      s.branch_growth_steepness = static_cast<float>(options_.branch_growth_steepness);
    }
    s.first_parameter = static_cast<int32_t>(plan_.parameters.size());
    if (layer < 0) return;
    const int32_t layers = stack == Stack::kEncoder ? options_.encoder_layers : options_.decoder_layers;
    const bool first = kind == SublayerKind::kSelfAttention && layer == 0;
    if (first && !options_.block.first_norm) s.norm = NormPlacement::kNone;
    s.norm_gain = static_cast<float>(DepthInitFactor(method.norm_gain, layer, layers));
    s.second_gain = static_cast<float>(method.second_stream_gain);
    // Self-attention is a layer's first sublayer.
    s.cut_before = kind == SublayerKind::kSelfAttention || !method.couples_layer() ? 1 : 0;
    const size_t index = plan_.sublayers.size() - 1;
    if (kind != SublayerKind::kSelfAttention && method.learned_branch_gain) {
      s.learned_gain = plan_.sublayers[index - 1].learned_gain;
    }
  }

  void AddParameter(ParameterRole role, InitKind init, double init_scale, int64_t rows, int64_t columns) {
    ++plan_.sublayers.back().parameters;
    plan_.parameters.push_back({.role = role,
                                .sublayer = static_cast<int32_t>(plan_.sublayers.size()) - 1,
                                .init = init,
                                .init_scale = static_cast<float>(init_scale),
                                .rows = rows,
                                .columns = columns});
  }

  void AddTable(int32_t vocabulary) {
    plan_.sublayers.back().table = static_cast<int32_t>(plan_.parameters.size());
    const SublayerRecord& sublayer = plan_.sublayers.back();
    const StackMethod& method = Method(sublayer.stack);
    const double gain = sublayer.kind == SublayerKind::kOutputHead ? method.projection_gain : method.embedding_gain;
    AddParameter(ParameterRole::kEmbedding, InitKind::kNormal, gain * TableDeviation(options_.d_model), vocabulary,
                 options_.d_model);
  }

  double TableDeviation(int64_t width) const {
    return options_.block.initial_deviation > 0 ? options_.block.initial_deviation
                                                : 1 / std::sqrt(static_cast<double>(width));
  }

  // `adaptive`: the bands of an adaptive softmax, if there is one.
  void AddEmbedding(int32_t vocabulary, bool adaptive) {
    if (!adaptive || !options_.adaptive()) return AddTable(vocabulary);
    plan_.sublayers.back().table = static_cast<int32_t>(plan_.parameters.size());
    const double gain = Method(plan_.sublayers.back().stack).embedding_gain;
    for (const AdaptiveBand& band : AdaptiveBands(options_)) {
      const bool first = band.first == 0;
      AddParameter(first ? ParameterRole::kEmbedding : ParameterRole::kTailTable, InitKind::kNormal,
                   gain * TableDeviation(band.width), band.words, band.width);
      if (!first) AddWeight(ParameterRole::kTailProjection, 1, options_.d_model, band.width);
    }
    AddWeight(ParameterRole::kInputProjection, 1, options_.d_model, options_.d_model);
  }

  // Learned positions and the norm behind them. Positions as fairseq's: of deviation 1/sqrt(d); row p is the p-th
  // token's.
  void AddPositions() {
    if (options_.block.positions == Positions::kLearned) {
      AddParameter(ParameterRole::kPositionTable, InitKind::kNormal, TableDeviation(options_.d_model),
                   options_.max_positions, options_.d_model);
    }
    if (options_.block.embedding_norm) AddLayerNorm(ParameterRole::kEmbeddingNormScale, options_.d_model);
  }

  void AddMaskedHead() {
    AddWeight(ParameterRole::kHeadWeight, 1, options_.d_model, options_.d_model);
    if (options_.block.biases == Biases::kAll) {  // also with R-Fixup: else the head would not see the stack's scale
      AddParameter(ParameterRole::kHeadBias, InitKind::kZero, 0, options_.d_model, 1);
    }
    AddLayerNorm(ParameterRole::kHeadNormScale, options_.d_model);
    AddParameter(ParameterRole::kLogitBias, InitKind::kZero, 0, options_.target_vocabulary, 1);
  }

  void AddHead() {
    const bool tied = plan_.sublayers.back().table >= 0;
    if (!options_.adaptive()) {
      if (!tied) AddTable(options_.target_vocabulary);
      return;
    }
    const int64_t d = options_.d_model, clusters = options_.adaptive_cutoffs.count;
    if (tied) return AddWeight(ParameterRole::kClusterWeight, 1, clusters, d);
    plan_.sublayers.back().table = static_cast<int32_t>(plan_.parameters.size());
    const double gain = options_.decoder.projection_gain;
    for (const AdaptiveBand& band : AdaptiveBands(options_)) {
      if (band.first == 0) {
        AddWeight(ParameterRole::kEmbedding, gain, band.words + clusters, d);
      } else {
        AddWeight(ParameterRole::kTailTable, gain, band.words, band.width);
        AddWeight(ParameterRole::kTailProjection, 1, band.width, d);
      }
    }
  }

  // Two convolutions with GLUs behind, initialised as PyTorch's Conv1d: uniform within 1/sqrt(inputs).
  void AddConvolutions() {
    const int64_t channels = options_.front_end_channels;
    const auto add = [this](int64_t out, int64_t in) {
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      AddParameter(ParameterRole::kConvolutionWeight, InitKind::kUniform, bound, out, in);
      AddParameter(ParameterRole::kConvolutionBias, InitKind::kUniform, bound, out, 1);
    };
    add(channels, kConvolutionTaps * options_.frame_width);
    add(2 * options_.d_model, kConvolutionTaps * channels / 2);
  }

  // Xavier: uniform bound gain·sqrt(6/(in + out)), normal deviation gain·sqrt(2/(in + out)), times the layer's factor
  // if it has a layer; or with Block::initial_deviation that, times the gain over the method's plain gain.
  void AddWeight(ParameterRole role, double gain, int64_t out, int64_t in) {
    const bool normal = options_.distribution == WeightDistribution::kXavierNormal;
    const SublayerRecord& sublayer = plan_.sublayers.back();
    const int32_t layers = sublayer.stack == Stack::kEncoder ? options_.encoder_layers : options_.decoder_layers;
    const double of_layer =
        sublayer.layer < 0 ? 1 : DepthInitFactor(Method(sublayer.stack).depth_init, sublayer.layer, layers);
    if (const double deviation = options_.block.initial_deviation; deviation > 0) {
      return AddParameter(role, InitKind::kNormal, deviation * of_layer * gain / PlainGain(role), out, in);
    }
    AddParameter(role, normal ? InitKind::kNormal : InitKind::kUniform,
                 gain * of_layer * std::sqrt((normal ? 2.0 : 6.0) / static_cast<double>(in + out)), out, in);
  }

  // The gain of a role where a method scales nothing: fairseq's of q, k, v and the gate, unless the method counts from
  // 1, times the root of the stack's sublayers for a branch's last product if the block sets it.
  double PlainGain(ParameterRole role) const {
    const Stack stack = plan_.sublayers.back().stack;
    if (role == ParameterRole::kQueryWeight || role == ParameterRole::kKeyWeight ||
        role == ParameterRole::kValueWeight || role == ParameterRole::kGateWeight) {
      return Method(stack).query_key_gain == 1 ? 1 : StackMethod().query_key_gain;
    }
    const bool last = role == ParameterRole::kOutputWeight || role == ParameterRole::kContractionWeight;
    if (!last || !options_.block.initial_depth_factor) return 1;
    return std::sqrt(double(stack == Stack::kEncoder ? options_.encoder_sublayers() : options_.decoder_sublayers()));
  }

  void AddBias(ParameterRole role, int64_t size) {
    const bool of_qkv = role == ParameterRole::kQueryBias || role == ParameterRole::kKeyBias ||
                        role == ParameterRole::kValueBias || role == ParameterRole::kGateBias;
    const Biases biases = options_.block.biases;
    if (biases == Biases::kNone || (biases == Biases::kQkv && !of_qkv)) return;
    if (Method(plan_.sublayers.back().stack).linear_bias) AddParameter(role, InitKind::kZero, 0, size, 1);
  }

  void AddShift(ParameterRole role) { AddParameter(role, InitKind::kZero, 0, 1, 1); }

  // A gain that only the sublayer's own branch has.
  void AddBranchScale() {
    plan_.sublayers.back().learned_gain = static_cast<int32_t>(plan_.parameters.size());
    AddParameter(ParameterRole::kBranchScale, InitKind::kOne, 0, 1, 1);
  }

  // A norm over `width`; the role of its shift follows that of its scale.
  void AddLayerNorm(ParameterRole scale, int64_t width) {
    AddParameter(scale, InitKind::kOne, 0, width, 1);
    if (!options_.block.norm_shift) return;
    AddParameter(static_cast<ParameterRole>(static_cast<int32_t>(scale) + 1), InitKind::kZero, 0, width, 1);
  }

  void AddNorm(bool closing) {
    SublayerRecord& sublayer = plan_.sublayers.back();
    if (sublayer.norm != NormPlacement::kNone) AddLayerNorm(ParameterRole::kNormScale, options_.d_model);
    const StackMethod& method = Method(sublayer.stack);
    if (method.omega != Omega::kNone) {
      const double start = method.omega == Omega::kConstant ? method.initial_omega : 1;
      AddParameter(ParameterRole::kOmega, InitKind::kConstant, start, options_.d_model, 1);
    }
    if (method.residual_streams > 1) AddHyperMaps(method);
    const bool begins_stack = sublayer.kind == SublayerKind::kSelfAttention && sublayer.layer == 0;
    if (method.reads_blocks() && !begins_stack) AddReader(ParameterRole::kReaderQuery);
    if (closing && method.reads_blocks() && !method.attention_residual_delta) {
      AddReader(ParameterRole::kClosingReaderQuery);
    }
    if (!closing || (sublayer.norm != NormPlacement::kPre && sublayer.second_gain == 0)) return;
    sublayer.closing_norm = 1;
    AddLayerNorm(ParameterRole::kClosingNormScale, options_.d_model);
    if (sublayer.stack == Stack::kEncoder || options_.width_multiplier() == 1) return;
    const size_t behind = options_.block.norm_shift ? 2 : 1;
    ParameterRecord& scale = plan_.parameters[plan_.parameters.size() - behind];  // it scales the logits
    scale.init = InitKind::kConstant;
    scale.init_scale = static_cast<float>(1 / std::sqrt(options_.width_multiplier()));
  }

  // At first its softmax is uniform. The role of the scale follows that of the query.
  void AddReader(ParameterRole query) {
    AddParameter(query, InitKind::kZero, 0, options_.d_model, 1);
    AddParameter(static_cast<ParameterRole>(static_cast<int32_t>(query) + 1), InitKind::kOne, 0, options_.d_model, 1);
  }

  // Gates of 0.01 and no bias: at first H_pre is near 1/2, H_post near 1, Sinkhorn's H_res near 1/n everywhere, a mean
  // of permutations near 1.
  void AddHyperMaps(const StackMethod& method) {
    const int64_t logits = HyperLogits(method.residual_mixing, method.residual_streams);
    AddWeight(ParameterRole::kHyperMapWeight, 1, logits, int64_t{method.residual_streams} * options_.d_model);
    AddParameter(ParameterRole::kHyperMapGates, InitKind::kConstant, 0.01, kHyperGates, 1);
    AddParameter(ParameterRole::kHyperMapBias, InitKind::kZero, 0, logits, 1);
  }

  // The norms around a branch.
  void AddBranchNorms(const StackMethod& method, bool output_norm = false) {
    if (method.branch_input_norm) AddLayerNorm(ParameterRole::kInputNormScale, options_.d_model);
    if (method.branch_output_norm || output_norm) AddLayerNorm(ParameterRole::kOutputNormScale, options_.d_model);
  }

  // What a method adds to a layer's self-attention.
  void AddAttentionExtras(const StackMethod& method) {
    if (method.head_scale) AddParameter(ParameterRole::kHeadScale, InitKind::kOne, 0, options_.heads, 1);
    if (method.attention_inner_norm) AddLayerNorm(ParameterRole::kInnerNormScale, options_.query_width());
    AddBranchNorms(method, method.attention_output_norm);
    AddAttentionScalars(method);
    if (!method.learned_branch_gain) return;
    plan_.sublayers.back().learned_gain = static_cast<int32_t>(plan_.parameters.size());
    AddParameter(ParameterRole::kLearnedGain, InitKind::kZero, 0, 1, 1);
  }

  void AddHeadNorms() {
    if (!options_.block.query_key_norm) return;
    AddLayerNorm(ParameterRole::kQueryNormScale, options_.head_width());
    AddLayerNorm(ParameterRole::kKeyNormScale, options_.head_width());
  }

  void AddAttentionScalars(const StackMethod& method) {
    if (!method.fixup_scalars) return;
    AddShift(ParameterRole::kQueryShift);
    AddBranchScale();
  }

  void AddFeedForwardScalars(const StackMethod& method, bool last) {
    if (!method.fixup_scalars) return;
    AddShift(ParameterRole::kInputShift);
    AddShift(ParameterRole::kHiddenShift);
    AddShift(ParameterRole::kContractionShift);
    AddBranchScale();
    const SublayerRecord& sublayer = plan_.sublayers.back();
    if (!last || sublayer.norm != NormPlacement::kNone) return;
    AddShift(ParameterRole::kClosingShift);
    if (sublayer.stack == Stack::kEncoder) AddParameter(ParameterRole::kClosingScale, InitKind::kOne, 0, 1, 1);
  }

  // Parameters of a stack that combines its layers. A layer's first sublayer reads row `layer` of the weights; the
  // stack's last sublayer also has row `layer` + 1, which is used after it.
  void AddCombination(bool last_of_stack) {
    const SublayerRecord& sublayer = plan_.sublayers.back();
    if (!Method(sublayer.stack).combine_layers) return;
    const bool first_of_layer = sublayer.kind == SublayerKind::kSelfAttention;
    const int64_t row = first_of_layer ? sublayer.layer : sublayer.layer + 1;
    const bool reads = first_of_layer || last_of_stack;
    if (reads) {
      AddParameter(ParameterRole::kCombinationWeight, InitKind::kConstant, 1 / (row + 1.0), row + 1, 1);
    }
    const bool behind_sum = sublayer.norm == NormPlacement::kPost && reads && row > 0;
    const bool behind_layer = sublayer.norm == NormPlacement::kPre && !first_of_layer;
    if (behind_sum || behind_layer) AddLayerNorm(ParameterRole::kCombinationNormScale, options_.d_model);
  }

  // q, k, v weights follow each other, and the gate's, then their biases, so that one product serves all.
  void AddSelfAttention(Stack stack, int32_t layer) {
    AddSublayer(SublayerKind::kSelfAttention, stack, layer);
    const StackMethod& method = Method(stack);
    const int64_t d = options_.d_model, of_queries = options_.query_width(), of_keys = options_.key_width();
    AddWeight(ParameterRole::kQueryWeight, method.query_key_gain, of_queries, d);
    AddWeight(ParameterRole::kKeyWeight, method.query_key_gain, of_keys, d);
    AddWeight(ParameterRole::kValueWeight, method.value_gain, of_keys, d);
    const bool gated = options_.block.attention_gate;
    if (gated) AddWeight(ParameterRole::kGateWeight, method.query_key_gain, of_queries, d);
    AddBias(ParameterRole::kQueryBias, of_queries);
    AddBias(ParameterRole::kKeyBias, of_keys);
    AddBias(ParameterRole::kValueBias, of_keys);
    if (gated) AddBias(ParameterRole::kGateBias, of_queries);
    AddWeight(ParameterRole::kOutputWeight, method.output_gain, d, of_queries);
    AddBias(ParameterRole::kOutputBias, d);
    AddNorm(/*closing=*/false);
    AddHeadNorms();
    AddAttentionExtras(method);
    AddCombination(/*last_of_stack=*/false);
  }

  // q's weight alone, because queries come from the residual stream. k and v come from the encoder's output and follow
  // each other.
  void AddCrossAttention(int32_t layer) {
    AddSublayer(SublayerKind::kCrossAttention, Stack::kDecoder, layer);
    const StackMethod& method = options_.decoder;
    const int64_t d = options_.d_model, of_queries = options_.query_width(), of_keys = options_.key_width();
    AddWeight(ParameterRole::kQueryWeight, method.query_key_gain, of_queries, d);
    AddBias(ParameterRole::kQueryBias, of_queries);
    AddWeight(ParameterRole::kKeyWeight, method.query_key_gain, of_keys, d);
    AddWeight(ParameterRole::kValueWeight, method.cross_value_gain, of_keys, d);
    AddBias(ParameterRole::kKeyBias, of_keys);
    AddBias(ParameterRole::kValueBias, of_keys);
    AddWeight(ParameterRole::kOutputWeight, method.cross_output_gain, d, of_queries);
    AddBias(ParameterRole::kOutputBias, d);
    AddNorm(/*closing=*/false);
    AddHeadNorms();
    AddBranchNorms(method);
    AddAttentionScalars(method);
  }

  void AddFeedForward(Stack stack, int32_t layer, bool last) {
    AddSublayer(SublayerKind::kFeedForward, stack, layer);
    const StackMethod& method = Method(stack);
    AddWeight(ParameterRole::kHiddenWeight, method.ffn_gain, options_.d_ff, options_.d_model);
    if (options_.block.gated) AddWeight(ParameterRole::kLinearWeight, method.ffn_gain, options_.d_ff, options_.d_model);
    AddBias(ParameterRole::kHiddenBias, options_.d_ff);
    if (options_.block.gated) AddBias(ParameterRole::kLinearBias, options_.d_ff);
    AddWeight(ParameterRole::kContractionWeight, method.ffn_gain * method.ffn_output_factor, options_.d_model,
              options_.d_ff);
    AddBias(ParameterRole::kContractionBias, options_.d_model);
    AddNorm(/*closing=*/last);
    if (method.ffn_inner_norm) AddLayerNorm(ParameterRole::kHiddenNormScale, options_.d_ff);
    AddBranchNorms(method);
    AddFeedForwardScalars(method, last);
    AddCombination(last);
  }

  const ModelOptions& options_;
  ModelPlan plan_;
};

}  // namespace

ModelPlan ModelPlan::Make(const ModelOptions& options) { return PlanBuilder(options).Build(); }

}  // namespace hadal
