#include "layers/model_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace hadal {
namespace {

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

bool HasBranchGain(const SublayerRecord& sublayer) {
  return sublayer.branch_growth != BranchGrowth::kConstant || sublayer.branch_gain != 1.0f;
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
      return true;
    case ParameterRole::kOutputBias:  // of the residual connection, but where a norm comes in between
      return ParameterOf(record.sublayer, ParameterRole::kOutputNormScale) >= 0;
    case ParameterRole::kHiddenBias:  // or first shifted
      return ParameterOf(record.sublayer, ParameterRole::kHiddenShift) < 0;
    default:
      return !record.is_vector();
  }
}

int32_t ModelPlan::NormBehind(int32_t sublayer) const {
  return ParameterOf(sublayer, Combines(sublayers[sublayer].stack) ? ParameterRole::kCombinationNormScale
                                                                   : ParameterRole::kClosingNormScale);
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
