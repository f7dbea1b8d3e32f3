#include "pipeline/checkpoint/deepening.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/math.h"

namespace hadal {
namespace {

constexpr char kLayers[] = ".layers.";

// "encoder.layers.7.fc1.bias" in parts.
struct LayerName {
  std::string stack;  // "encoder"
  int32_t layer = 0;  // 7
  std::string rest;   // ".fc1.bias"
};

std::optional<LayerName> ParseLayerName(const std::string& name) {
  const size_t layers = name.find(kLayers);
  if (layers == std::string::npos) return std::nullopt;
  LayerName result{.stack = name.substr(0, layers)};
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + layers + sizeof(kLayers) - 1, end, result.layer);
  if (error != std::errc()) return std::nullopt;
  result.rest.assign(rest, end);
  return result;
}

// Layers of each stack.
std::map<std::string, int64_t> CountLayers(const std::vector<CheckpointParameter>& parameters) {
  std::map<std::string, int64_t> layers;
  for (const CheckpointParameter& parameter : parameters) {
    const std::optional<LayerName> name = ParseLayerName(parameter.name);
    if (name) layers[name->stack] = std::max(layers[name->stack], int64_t{name->layer} + 1);
  }
  return layers;
}

// Whether a branch ends with this parameter's product or norm.
bool EndsBranch(const ModelPlan& plan, const ParameterRecord& parameter) {
  switch (parameter.role) {
    case ParameterRole::kOutputNormScale:
    case ParameterRole::kOutputNormShift:
      return true;
    case ParameterRole::kOutputWeight:
    case ParameterRole::kOutputBias:
    case ParameterRole::kContractionWeight:
    case ParameterRole::kContractionBias:
      return plan.ParameterOf(parameter.sublayer, ParameterRole::kOutputNormScale) < 0;
    default:
      return false;
  }
}

// The start of one of `copies` copies of a layer's parameter, which belongs to the sublayer `source`.
DeepenedParameter StartOf(const ModelPlan& plan, const ParameterRecord& parameter, const SublayerRecord& source,
                          int64_t copies) {
  const SublayerRecord& sublayer = plan.sublayers[parameter.sublayer];
  const float share = 1.0f / static_cast<float>(copies);
  if (sublayer.norm == NormPlacement::kPost) {
    if (parameter.role == ParameterRole::kNormScale) return {.power = share};
    if (parameter.role == ParameterRole::kNormShift) return {.factor = share};
  }
  if (!EndsBranch(plan, parameter)) return {};
  return {.factor =
              share * (source.branch_gain / source.residual_gain) / (sublayer.branch_gain / sublayer.residual_gain)};
}

}  // namespace

void DeepenedParameter::Apply(Vector weights) const {
  if (power != 1) {
    double squares = 0;
    for (int64_t i = 0; i < weights.size; ++i) squares += double{weights[i]} * weights[i];
    const float s = static_cast<float>(std::sqrt(squares / static_cast<double>(weights.size)));
    if (s == 0) return;
    for (int64_t i = 0; i < weights.size; ++i) {
      weights[i] = std::copysign(s * Pow(std::abs(weights[i]) / s, power), weights[i]);
    }
  }
  if (factor == 1) return;
  for (int64_t i = 0; i < weights.size; ++i) weights[i] *= factor;
}

absl::StatusOr<std::vector<DeepenedParameter>> DeepenedParameters(const ModelPlan& from, const ModelPlan& to) {
  const std::vector<CheckpointParameter> checkpoint = DescribeParameters(from), model = DescribeParameters(to);
  const std::map<std::string, int64_t> before = CountLayers(checkpoint), after = CountLayers(model);
  for (const auto& [stack, layers] : before) {
    const auto found = after.find(stack);
    if (found != after.end() && found->second >= layers) continue;
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint's ", stack, " has ", layers,
                                                      " layers, more than the model's; layers can only be added"));
  }
  std::map<std::string, int32_t> by_name;
  for (size_t p = 0; p < checkpoint.size(); ++p) by_name[checkpoint[p].name] = static_cast<int32_t>(p);
  std::vector<DeepenedParameter> starts;
  std::vector<bool> used(checkpoint.size());
  for (size_t p = 0; p < model.size(); ++p) {
    const CheckpointParameter& parameter = model[p];
    std::string source = parameter.name;
    int64_t copies = 1;
    const std::optional<LayerName> name = ParseLayerName(parameter.name);
    if (name && before.contains(name->stack)) {
      const int64_t m = before.at(name->stack), n = after.at(name->stack), layer = name->layer * m / n;
      copies = ((layer + 1) * n + m - 1) / m - (layer * n + m - 1) / m;  // from layer ⌈layer·n/m⌉ on
      source = absl::StrCat(name->stack, kLayers, layer, name->rest);
    }
    const auto found = by_name.find(source);
    if (found == by_name.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the checkpoint has no ", source, ", from which ", parameter.name, " would start"));
    }
    const CheckpointParameter& stored = checkpoint[found->second];
    if (stored.rows != parameter.rows || stored.columns != parameter.columns ||
        stored.is_vector != parameter.is_vector) {
      return absl::FailedPreconditionError(absl::StrCat("the checkpoint's ", source, " has the shape [", stored.rows,
                                                        ", ", stored.columns, "], the model's ", parameter.name, " [",
                                                        parameter.rows, ", ", parameter.columns, "]"));
    }
    const ParameterRecord& record = to.parameters[p];
    const SublayerRecord& from_sublayer = from.sublayers[from.parameters[found->second].sublayer];
    starts.push_back(name ? StartOf(to, record, from_sublayer, copies) : DeepenedParameter());
    starts.back().source = found->second;
    used[found->second] = true;
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return starts;
  return absl::FailedPreconditionError(
      absl::StrCat("the model has no place for the checkpoint's ", checkpoint[unused - used.begin()].name));
}

}  // namespace hadal
