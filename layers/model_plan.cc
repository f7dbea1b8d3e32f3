#include "layers/model_plan.h"

#include <cstddef>
#include <initializer_list>

#include "runtime/bytes.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// FNV-1a.
uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : bytes) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

bool IsOneOf(ParameterRole role, std::initializer_list<ParameterRole> roles) {
  return std::ranges::find(roles, role) != roles.end();
}

}  // namespace

float BranchGain(const SublayerRecord& sublayer, int64_t update) {
  if (sublayer.branch_growth == BranchGrowth::kConstant) return sublayer.branch_gain;
  const double time = static_cast<double>(update) / sublayer.branch_growth_updates;
  const double k = sublayer.branch_growth_steepness;
  double growth = time;
  if (sublayer.branch_growth == BranchGrowth::kExponential) growth = (Exp(k * time) - 1) / (Exp(k) - 1);
  if (sublayer.branch_growth == BranchGrowth::kSigmoid) growth = 2 / (1 + Exp(-k * time)) - 1;
  return static_cast<float>(sublayer.branch_gain * std::min(1.0, growth));
}

bool HasBranchGain(const SublayerRecord& sublayer) {
  return sublayer.branch_growth != BranchGrowth::kConstant || sublayer.branch_gain != 1.0f;
}

bool ParameterRecord::is_branch_weight() const {
  using enum ParameterRole;
  return IsOneOf(role, {kQueryWeight, kKeyWeight, kValueWeight, kGateWeight, kOutputWeight, kHiddenWeight,
                        kLinearWeight, kContractionWeight});
}

bool ParameterRecord::is_vector() const {
  using enum ParameterRole;
  return !is_branch_weight() &&
         !IsOneOf(role, {kEmbedding, kTailTable, kTailProjection, kInputProjection, kClusterWeight, kConvolutionWeight,
                         kHyperMapWeight, kPositionTable, kHeadWeight});
}

std::string ModelPlan::Serialize() const {
  std::string body;
  AppendValue(options, body);
  AppendList(sublayers, body);
  AppendList(parameters, body);
  std::string bytes;
  AppendValue(HashBytes(body), bytes);
  return bytes + body;
}

absl::StatusOr<ModelPlan> ModelPlan::Parse(std::string_view bytes) {
  uint64_t hash = 0;
  ModelPlan plan;
  if (!TakeValue(bytes, hash) || hash != HashBytes(bytes) || !TakeValue(bytes, plan.options) ||
      !TakeList(bytes, plan.sublayers) || !TakeList(bytes, plan.parameters) || !bytes.empty()) {
    return DataLossError(
        "the model plan that rank 0 sent is damaged or comes from another build of hadal. "
        "Start the same binary on every rank.");
  }
  return plan;
}

uint64_t ModelPlan::Hash() const {
  // Hash the records, not the options: two option sets that give the same list are the same model.
  std::string body;
  AppendValue(static_cast<uint64_t>(sublayers.size()), body);
  std::vector<float> norm_gains, second_gains;
  for (const SublayerRecord& sublayer : sublayers) {
    body.append(reinterpret_cast<const char*>(&sublayer), offsetof(SublayerRecord, norm_gain));
    norm_gains.push_back(sublayer.norm_gain);
    second_gains.push_back(sublayer.second_gain);
  }
  AppendList(parameters, body);
  AppendValue(options.heads, body);
  if (std::any_of(norm_gains.begin(), norm_gains.end(), [](float gain) { return gain != 1; })) {
    AppendList(norm_gains, body);
  }
  if (std::any_of(second_gains.begin(), second_gains.end(), [](float gain) { return gain != 0; })) {
    AppendList(second_gains, body);
  }
  for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
    if (!ReadsBlocks(stack)) continue;
    AppendValue(BlockSublayers(stack), body);
    AppendValue((stack == Stack::kEncoder ? options.encoder : options.decoder).attention_residual_delta, body);
  }
  if (options.block != Block()) {
    const Block& b = options.block;
    for (const double field : {double(b.norm), b.norm_epsilon, double(b.activation)}) AppendValue(field, body);
    if (!b.scale_embedding) AppendValue(b.scale_embedding, body);
    if (b.window > 0) {
      for (const double field : {double(b.window), double(b.global_every), b.rotary_local_theta}) {
        AppendValue(field, body);
      }
    }
    if (b.rotary_scaling != 1) {
      for (const double field : {b.rotary_scaling, double(b.rotary_scaling_positions)}) AppendValue(field, body);
    }
    if (b.positions != Positions::kSinusoidal) {
      for (const double field : {double(b.positions), b.rotary_theta, b.rotary_share}) AppendValue(field, body);
    }
  }
  return HashBytes(body);
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

bool ModelPlan::ReadByProductsAlone(int32_t parameter) const {
  const ParameterRecord& record = parameters[parameter];
  switch (record.role) {
    case ParameterRole::kQueryBias:
    case ParameterRole::kKeyBias:
    case ParameterRole::kValueBias:
    case ParameterRole::kConvolutionBias:
    case ParameterRole::kLinearBias:
    case ParameterRole::kGateBias:
    case ParameterRole::kHeadBias:
    case ParameterRole::kLogitBias:
      return true;
    case ParameterRole::kPositionTable:
    case ParameterRole::kHyperMapWeight:  // with the streams, which are fp32
      return false;
    case ParameterRole::kOutputBias:  // added by the residual connection's kernel, unless a norm comes first
    case ParameterRole::kContractionBias:
      return ParameterOf(record.sublayer, ParameterRole::kOutputNormScale) >= 0;
    case ParameterRole::kHiddenBias:  // added by the product, unless it is first shifted
      return ParameterOf(record.sublayer, ParameterRole::kHiddenShift) < 0;
    default:
      return !record.is_vector();
  }
}

bool ModelPlan::uses_muon(int32_t parameter) const {
  return muon_steps != 0 && parameters[parameter].is_branch_weight();
}

int32_t ModelPlan::BlockSublayers(Stack stack) const {
  const bool encodes = stack == Stack::kEncoder;
  const StackMethod& method = encodes ? options.encoder : options.decoder;
  if (method.attention_residual_block_sublayers > 0) return method.attention_residual_block_sublayers;
  const int32_t blocks = method.attention_residual_blocks;
  return ((encodes ? options.encoder_sublayers() : options.decoder_sublayers()) + blocks - 1) / blocks;
}

int32_t ModelPlan::OpenSublayers(int32_t position) const {
  if (ends_stack(position)) return 0;
  const Stack stack = StackBefore(position);
  const int32_t embedding = stack == Stack::kEncoder ? source_embedding() : target_embedding();
  return (position - embedding - 1) % BlockSublayers(stack);
}

int32_t ModelPlan::HistoryBefore(int32_t position) const {
  if (begins_stack(position)) return 1;
  const SublayerRecord& before = sublayers[position - 1];
  if (Combines(before.stack)) return before.layer + (before.kind == SublayerKind::kFeedForward ? 2 : 1);
  const int32_t embedding = before.stack == Stack::kEncoder ? source_embedding() : target_embedding();
  const int32_t length = BlockSublayers(before.stack), behind = position - embedding - 1;
  return 1 + (ends_stack(position) ? behind + length - 1 : behind) / length;
}

int32_t ModelPlan::NormBehind(int32_t sublayer) const {
  if (ReadsBlocks(sublayers[sublayer].stack)) return -1;  // BlockReadingEnd has it
  return ParameterOf(sublayer, Combines(sublayers[sublayer].stack) ? ParameterRole::kCombinationNormScale
                                                                   : ParameterRole::kClosingNormScale);
}

int32_t ModelPlan::NextCut(int32_t position) const {
  const int32_t end = static_cast<int32_t>(sublayers.size());
  while (position < end && sublayers[position].cut_before == 0) ++position;
  return position;
}

int32_t ModelPlan::SegmentEnd(int32_t begin, int32_t length, int32_t last) const {
  const Stack stack = sublayers[begin].stack;
  if (ReadsBlocks(stack)) last = std::min(last, begin - OpenSublayers(begin) + BlockSublayers(stack));
  int32_t end = begin + 1;
  while (end < std::min(begin + length, last) && sublayers[end].norm == sublayers[begin].norm) ++end;
  return NextCut(end);
}

int32_t ModelPlan::Tables(int32_t sublayer) const {
  const SublayerRecord& user = sublayers[sublayer];
  if (user.table < 0) return 0;
  // They are the first parameters of their owner. The head does not use the last one of an embedding's.
  const SublayerRecord& owner = sublayers[parameters[user.table].sublayer];
  const auto is_used = [&](const ParameterRecord& parameter) {
    return parameter.is_table() &&
           (parameter.role != ParameterRole::kInputProjection || user.kind != SublayerKind::kOutputHead);
  };
  int32_t count = 0;
  while (count < owner.parameters && is_used(parameters[user.table + count])) ++count;
  return count;
}

std::vector<int32_t> ModelPlan::Uses(int32_t parameter) const {
  if (!parameters[parameter].is_table()) return {parameters[parameter].sublayer};
  std::vector<int32_t> uses;
  for (int32_t sublayer : {source_embedding(), target_embedding(), output_head()}) {
    if (sublayer >= 0 && UsesTable(sublayer, parameter)) uses.push_back(sublayer);
  }
  return uses;
}

}  // namespace hadal
