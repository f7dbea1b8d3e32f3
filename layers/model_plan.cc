#include "layers/model_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Builds the two lists front to back; parameters join the sublayer added last.
class PlanBuilder {
 public:
  explicit PlanBuilder(const ModelOptions& options) : options_(options) { plan_.options = options; }

  ModelPlan Build() {
    if (options_.has_encoder()) AddEncoder();
    AddSublayer(SublayerKind::kTargetEmbedding, Stack::kDecoder, -1);
    const int32_t source_table = 0;
    if (options_.has_encoder() && options_.sharing == EmbeddingSharing::kAll) {
      plan_.sublayers.back().table = source_table;
    } else {
      AddTable(options_.target_vocabulary);
    }
    const int32_t target_table = plan_.sublayers.back().table;
    for (int32_t layer = 0; layer < options_.decoder_layers; ++layer) {
      AddSelfAttention(Stack::kDecoder, layer);
      if (options_.has_encoder()) AddCrossAttention(layer);
      AddFeedForward(Stack::kDecoder, layer, layer + 1 == options_.decoder_layers);
    }
    AddSublayer(SublayerKind::kOutputHead, Stack::kDecoder, -1);
    if (options_.sharing == EmbeddingSharing::kNone) {
      AddTable(options_.target_vocabulary);
    } else {
      plan_.sublayers.back().table = target_table;
    }
    return std::move(plan_);
  }

 private:
  const StackMethod& Method(Stack stack) const {
    return stack == Stack::kEncoder ? options_.encoder : options_.decoder;
  }

  void AddEncoder() {
    AddSublayer(SublayerKind::kSourceEmbedding, Stack::kEncoder, -1);
    AddTable(options_.source_vocabulary);
    for (int32_t layer = 0; layer < options_.encoder_layers; ++layer) {
      AddSelfAttention(Stack::kEncoder, layer);
      AddFeedForward(Stack::kEncoder, layer, layer + 1 == options_.encoder_layers);
    }
  }

  void AddSublayer(SublayerKind kind, Stack stack, int32_t layer) {
    SublayerRecord& s = plan_.sublayers.emplace_back();
    s.kind = kind;
    s.stack = stack;
    s.layer = layer;
    const StackMethod& method = Method(stack);
    s.norm = method.norm;
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
    AddParameter(ParameterRole::kEmbedding, InitKind::kNormal, gain / std::sqrt(double(options_.d_model)), vocabulary,
                 options_.d_model);
  }

  // Xavier: uniform bound gain·sqrt(6/(in + out)), normal deviation gain·sqrt(2/(in + out)), times the layer's factor.
  void AddWeight(ParameterRole role, double gain, int64_t out, int64_t in) {
    const bool normal = options_.distribution == WeightDistribution::kXavierNormal;
    const SublayerRecord& sublayer = plan_.sublayers.back();
    const int32_t layers = sublayer.stack == Stack::kEncoder ? options_.encoder_layers : options_.decoder_layers;
    const double of_layer = DepthInitFactor(Method(sublayer.stack).depth_init, sublayer.layer, layers);
    AddParameter(role, normal ? InitKind::kNormal : InitKind::kUniform,
                 gain * of_layer * std::sqrt((normal ? 2.0 : 6.0) / static_cast<double>(in + out)), out, in);
  }

  void AddBias(ParameterRole role, int64_t size) {
    if (Method(plan_.sublayers.back().stack).linear_bias) AddParameter(role, InitKind::kZero, 0, size, 1);
  }

  void AddShift(ParameterRole role) { AddParameter(role, InitKind::kZero, 0, 1, 1); }

  // A gain that the sublayer's branch alone has.
  void AddBranchScale() {
    plan_.sublayers.back().learned_gain = static_cast<int32_t>(plan_.parameters.size());
    AddParameter(ParameterRole::kBranchScale, InitKind::kOne, 0, 1, 1);
  }

  // A LayerNorm over `width`; the shift's role follows the scale's.
  void AddLayerNorm(ParameterRole scale, int64_t width) {
    AddParameter(scale, InitKind::kOne, 0, width, 1);
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
    if (!closing || sublayer.norm != NormPlacement::kPre) return;
    sublayer.closing_norm = 1;
    AddLayerNorm(ParameterRole::kClosingNormScale, options_.d_model);
  }

  // What a method adds to a layer's self-attention.
  void AddAttentionExtras(const StackMethod& method) {
    if (method.head_scale) AddParameter(ParameterRole::kHeadScale, InitKind::kOne, 0, options_.heads, 1);
    if (method.attention_inner_norm) AddLayerNorm(ParameterRole::kInnerNormScale, options_.d_model);
    if (method.attention_output_norm) AddLayerNorm(ParameterRole::kOutputNormScale, options_.d_model);
    AddAttentionScalars(method);
    if (!method.learned_branch_gain) return;
    plan_.sublayers.back().learned_gain = static_cast<int32_t>(plan_.parameters.size());
    AddParameter(ParameterRole::kLearnedGain, InitKind::kZero, 0, 1, 1);
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

  // q, k, v weights lie next to each other, then their biases, so that one product serves all three.
  void AddSelfAttention(Stack stack, int32_t layer) {
    AddSublayer(SublayerKind::kSelfAttention, stack, layer);
    const StackMethod& method = Method(stack);
    const int64_t d = options_.d_model;
    AddWeight(ParameterRole::kQueryWeight, method.query_key_gain, d, d);
    AddWeight(ParameterRole::kKeyWeight, method.query_key_gain, d, d);
    AddWeight(ParameterRole::kValueWeight, method.value_gain, d, d);
    AddBias(ParameterRole::kQueryBias, d);
    AddBias(ParameterRole::kKeyBias, d);
    AddBias(ParameterRole::kValueBias, d);
    AddWeight(ParameterRole::kOutputWeight, method.output_gain, d, d);
    AddBias(ParameterRole::kOutputBias, d);
    AddNorm(/*closing=*/false);
    AddAttentionExtras(method);
  }

  // Queries come from the stream, keys and values from the encoder's memory: q alone, k and v next to each other.
  void AddCrossAttention(int32_t layer) {
    AddSublayer(SublayerKind::kCrossAttention, Stack::kDecoder, layer);
    const StackMethod& method = options_.decoder;
    const int64_t d = options_.d_model;
    AddWeight(ParameterRole::kQueryWeight, method.query_key_gain, d, d);
    AddBias(ParameterRole::kQueryBias, d);
    AddWeight(ParameterRole::kKeyWeight, method.query_key_gain, d, d);
    AddWeight(ParameterRole::kValueWeight, method.cross_value_gain, d, d);
    AddBias(ParameterRole::kKeyBias, d);
    AddBias(ParameterRole::kValueBias, d);
    AddWeight(ParameterRole::kOutputWeight, method.cross_output_gain, d, d);
    AddBias(ParameterRole::kOutputBias, d);
    AddNorm(/*closing=*/false);
    AddAttentionScalars(method);
  }

  void AddFeedForward(Stack stack, int32_t layer, bool last) {
    AddSublayer(SublayerKind::kFeedForward, stack, layer);
    const StackMethod& method = Method(stack);
    AddWeight(ParameterRole::kHiddenWeight, method.ffn_gain, options_.d_ff, options_.d_model);
    AddBias(ParameterRole::kHiddenBias, options_.d_ff);
    AddWeight(ParameterRole::kContractionWeight, method.ffn_gain * method.ffn_output_factor, options_.d_model,
              options_.d_ff);
    AddBias(ParameterRole::kContractionBias, options_.d_model);
    AddNorm(/*closing=*/last);
    if (method.ffn_inner_norm) AddLayerNorm(ParameterRole::kHiddenNormScale, options_.d_ff);
    AddFeedForwardScalars(method, last);
  }

  const ModelOptions& options_;
  ModelPlan plan_;
};

// FNV-1a.
uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : bytes) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

static_assert(std::is_trivially_copyable_v<ModelOptions> && std::is_trivially_copyable_v<SublayerRecord> &&
              std::is_trivially_copyable_v<ParameterRecord>);

template <typename T>
void AppendBytes(const T& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool TakeBytes(std::string_view& in, T& value) {
  if (in.size() < sizeof(value)) return false;
  std::memcpy(&value, in.data(), sizeof(value));
  in.remove_prefix(sizeof(value));
  return true;
}

template <typename Record>
void AppendRecords(const std::vector<Record>& records, std::string& out) {
  AppendBytes(uint64_t{records.size()}, out);
  out.append(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(Record));
}

template <typename Record>
bool TakeRecords(std::string_view& in, std::vector<Record>& records) {
  uint64_t count = 0;
  if (!TakeBytes(in, count) || count > in.size() / sizeof(Record)) return false;
  records.resize(count);
  std::memcpy(records.data(), in.data(), count * sizeof(Record));
  in.remove_prefix(count * sizeof(Record));
  return true;
}

const char* RoleSuffix(ParameterRole role) {
  switch (role) {
    case ParameterRole::kQueryWeight:
      return "q_proj.weight";
    case ParameterRole::kKeyWeight:
      return "k_proj.weight";
    case ParameterRole::kValueWeight:
      return "v_proj.weight";
    case ParameterRole::kQueryBias:
      return "q_proj.bias";
    case ParameterRole::kKeyBias:
      return "k_proj.bias";
    case ParameterRole::kValueBias:
      return "v_proj.bias";
    case ParameterRole::kOutputWeight:
      return "out_proj.weight";
    case ParameterRole::kOutputBias:
      return "out_proj.bias";
    case ParameterRole::kHiddenWeight:
      return "fc1.weight";
    case ParameterRole::kHiddenBias:
      return "fc1.bias";
    case ParameterRole::kContractionWeight:
      return "fc2.weight";
    case ParameterRole::kContractionBias:
      return "fc2.bias";
    case ParameterRole::kNormScale:
    case ParameterRole::kClosingNormScale:
      return "weight";
    case ParameterRole::kNormShift:
    case ParameterRole::kClosingNormShift:
      return "bias";
    case ParameterRole::kEmbedding:
      return "weight";
    case ParameterRole::kLearnedGain:
      return "resweight";
    case ParameterRole::kHeadScale:
      return "head_scale";
    case ParameterRole::kInnerNormScale:
      return "inner_attn_ln.weight";
    case ParameterRole::kInnerNormShift:
      return "inner_attn_ln.bias";
    case ParameterRole::kOutputNormScale:
      return "attn_ln.weight";
    case ParameterRole::kOutputNormShift:
      return "attn_ln.bias";
    case ParameterRole::kHiddenNormScale:
      return "ffn_layernorm.weight";
    case ParameterRole::kHiddenNormShift:
      return "ffn_layernorm.bias";
    case ParameterRole::kQueryShift:
    case ParameterRole::kClosingShift:
      return "shift";
    case ParameterRole::kInputShift:
      return "shift1";
    case ParameterRole::kHiddenShift:
      return "shift2";
    case ParameterRole::kContractionShift:
      return "shift3";
    case ParameterRole::kBranchScale:
    case ParameterRole::kClosingScale:
      return "scale";
    case ParameterRole::kOmega:
      return "omega";
  }
  return "";
}

const char* StackName(Stack stack) { return stack == Stack::kEncoder ? "encoder" : "decoder"; }

bool IsNorm(ParameterRole role) { return role == ParameterRole::kNormScale || role == ParameterRole::kNormShift; }

bool IsClosingNorm(ParameterRole role) {
  return role == ParameterRole::kClosingNormScale || role == ParameterRole::kClosingNormShift;
}

// What belongs to the stack as a whole.
bool IsOfStack(ParameterRole role) {
  return role == ParameterRole::kClosingShift || role == ParameterRole::kClosingScale;
}

// What fairseq has no name for and the feed-forward has under "ffn.".
bool IsOfBranch(ParameterRole role) {
  return role == ParameterRole::kOmega || (role >= ParameterRole::kQueryShift && role <= ParameterRole::kBranchScale);
}

// What belongs to the layer as a whole.
bool IsOfLayer(ParameterRole role) {
  return role == ParameterRole::kLearnedGain || role == ParameterRole::kOutputNormScale ||
         role == ParameterRole::kOutputNormShift;
}

// fairseq's module names within a layer.
const char* ModulePrefix(SublayerKind kind, ParameterRole role) {
  const bool norm = IsNorm(role);
  if (IsOfLayer(role)) return "";
  switch (kind) {
    case SublayerKind::kSelfAttention:
      return norm ? "self_attn_layer_norm." : "self_attn.";
    case SublayerKind::kCrossAttention:
      return norm ? "encoder_attn_layer_norm." : "encoder_attn.";
    case SublayerKind::kFeedForward:
      return norm ? "final_layer_norm." : IsOfBranch(role) ? "ffn." : "";
    default:
      return "";
  }
}

}  // namespace

float BranchGain(const SublayerRecord& sublayer, int64_t update) {
  if (sublayer.branch_growth == BranchGrowth::kConstant) return sublayer.branch_gain;
  const double time = static_cast<double>(update) / sublayer.branch_growth_updates;
  const double k = sublayer.branch_growth_steepness;
  double growth = time;
  if (sublayer.branch_growth == BranchGrowth::kExponential) growth = std::expm1(k * time) / std::expm1(k);
  if (sublayer.branch_growth == BranchGrowth::kSigmoid) growth = 2 / (1 + std::exp(-k * time)) - 1;
  return static_cast<float>(sublayer.branch_gain * std::min(1.0, growth));
}

bool ParameterRecord::is_vector() const {
  switch (role) {
    case ParameterRole::kEmbedding:
    case ParameterRole::kQueryWeight:
    case ParameterRole::kKeyWeight:
    case ParameterRole::kValueWeight:
    case ParameterRole::kOutputWeight:
    case ParameterRole::kHiddenWeight:
    case ParameterRole::kContractionWeight:
      return false;
    default:
      return true;
  }
}

ModelPlan ModelPlan::Make(const ModelOptions& options) { return PlanBuilder(options).Build(); }

std::string ModelPlan::Serialize() const {
  std::string body;
  AppendBytes(options, body);
  AppendRecords(sublayers, body);
  AppendRecords(parameters, body);
  std::string bytes;
  AppendBytes(HashBytes(body), bytes);
  return bytes + body;
}

absl::StatusOr<ModelPlan> ModelPlan::Parse(std::string_view bytes) {
  uint64_t hash = 0;
  ModelPlan plan;
  if (!TakeBytes(bytes, hash) || hash != HashBytes(bytes) || !TakeBytes(bytes, plan.options) ||
      !TakeRecords(bytes, plan.sublayers) || !TakeRecords(bytes, plan.parameters) || !bytes.empty()) {
    return absl::DataLossError(
        "the model plan that rank 0 sent is damaged or comes from another build of hadal. "
        "Start the same binary on every rank.");
  }
  return plan;
}

uint64_t ModelPlan::Hash() const {
  // Records, not options: two option sets that expand to the same list are the same model.
  std::string body;
  AppendRecords(sublayers, body);
  AppendRecords(parameters, body);
  AppendBytes(options.heads, body);
  return HashBytes(body);
}

std::string ModelPlan::ParameterName(int32_t parameter) const {
  const ParameterRecord& record = parameters[parameter];
  const SublayerRecord& owner = sublayers[record.sublayer];
  if (record.role == ParameterRole::kEmbedding) {
    if (owner.kind == SublayerKind::kOutputHead) return "decoder.output_projection.weight";
    return absl::StrCat(StackName(owner.stack), ".embed_tokens.weight");
  }
  if (IsClosingNorm(record.role)) return absl::StrCat(StackName(owner.stack), ".layer_norm.", RoleSuffix(record.role));
  if (IsOfStack(record.role)) return absl::StrCat(StackName(owner.stack), ".", RoleSuffix(record.role));
  return absl::StrCat(StackName(owner.stack), ".layers.", owner.layer, ".", ModulePrefix(owner.kind, record.role),
                      RoleSuffix(record.role));
}

std::string ModelPlan::SublayerName(int32_t sublayer) const {
  const SublayerRecord& record = sublayers[sublayer];
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
      return "source embedding";
    case SublayerKind::kTargetEmbedding:
      return "target embedding";
    case SublayerKind::kOutputHead:
      return "output head";
    case SublayerKind::kSelfAttention:
      return absl::StrCat(StackName(record.stack), " layer ", record.layer, " self-attention");
    case SublayerKind::kCrossAttention:
      return absl::StrCat("decoder layer ", record.layer, " cross-attention");
    case SublayerKind::kFeedForward:
      return absl::StrCat(StackName(record.stack), " layer ", record.layer, " feed-forward");
  }
  return "";
}

int64_t ModelPlan::ParameterElements() const {
  int64_t total = 0;
  for (const ParameterRecord& parameter : parameters) total += parameter.elements();
  return total;
}

int32_t ModelPlan::ParameterOf(int32_t sublayer, ParameterRole role) const {
  const SublayerRecord& record = sublayers[sublayer];
  for (int32_t p = record.first_parameter; p < record.first_parameter + record.parameters; ++p) {
    if (parameters[p].role == role) return p;
  }
  return -1;
}

int32_t ModelPlan::NextCut(int32_t position) const {
  const int32_t end = static_cast<int32_t>(sublayers.size());
  while (position < end && sublayers[position].cut_before == 0) ++position;
  return position;
}

std::vector<int32_t> ModelPlan::Uses(int32_t parameter) const {
  if (parameters[parameter].role != ParameterRole::kEmbedding) return {parameters[parameter].sublayer};
  std::vector<int32_t> uses;
  for (int32_t sublayer : {source_embedding(), target_embedding(), output_head()}) {
    if (sublayer >= 0 && sublayers[sublayer].table == parameter) uses.push_back(sublayer);
  }
  return uses;
}

}  // namespace hadal
