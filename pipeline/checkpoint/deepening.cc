#include "pipeline/checkpoint/deepening.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"

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

// A parameter of the deeper model, in one of the copies of a layer.
struct Copy {
  const ModelPlan& plan;
  const ParameterRecord& parameter;
  const SublayerRecord& source;    // to which it belongs in the checkpoint
  int32_t source_reach = 0;        // of it (ModelPlan::Reach)
  int64_t number = 0, copies = 1;  // of the layer, from 0
  const SublayerRecord& sublayer() const { return plan.sublayers[parameter.sublayer]; }
  bool is_norm() const {
    return parameter.role == ParameterRole::kNormScale || parameter.role == ParameterRole::kNormShift;
  }
  // The factor with which a branch's last product keeps its part of the sum.
  float gains() const {
    return (source.branch_gain / source.residual_gain) / (sublayer().branch_gain / sublayer().residual_gain);
  }
};

DeepenedParameter SplitStart(const Copy& copy) {
  const float share = 1.0f / static_cast<float>(copy.copies);
  if (copy.sublayer().norm == NormPlacement::kPost && copy.is_norm()) {
    if (copy.parameter.role == ParameterRole::kNormScale) return {.power = share};
    return {.factor = share};
  }
  return {.factor = EndsBranch(copy.plan, copy.parameter) ? share * copy.gains() : 1};
}

DeepenedParameter ZeroStart(const Copy& copy) {
  const SublayerRecord& sublayer = copy.sublayer();
  const ParameterRole role = copy.parameter.role;
  const bool post = sublayer.norm == NormPlacement::kPost, added = copy.number > 0;
  if (post && copy.is_norm()) {
    // The norm behind a layer has its scale and shift behind the last copy.
    const int64_t keeper = sublayer.kind == SublayerKind::kFeedForward ? copy.copies - 1 : 0;
    if (copy.number == keeper) return {};
    return {.factor = 0, .offset = role == ParameterRole::kNormScale ? 1.0f : 0.0f};
  }
  if (!added && copy.is_norm()) return {.factor = copy.source.norm_gain / sublayer.norm_gain};
  if (!added) return {.factor = EndsBranch(copy.plan, copy.parameter) ? copy.gains() : 1};
  if (role == ParameterRole::kOmega) return {.factor = 0, .offset = post ? copy.parameter.init_scale : 1};
  const int32_t gain = sublayer.learned_gain;
  const bool by_gain = gain >= 0 && copy.plan.parameters[gain].role == ParameterRole::kLearnedGain;
  // If both were 0, neither would have a gradient.
  const bool zero = by_gain ? role == ParameterRole::kLearnedGain : EndsBranch(copy.plan, copy.parameter);
  return {.factor = zero ? 0.0f : 1.0f};
}

// How a sublayer with a branch of 0 would change the loss; "" if it would not.
std::string LossChange(const Copy& copy) {
  const SublayerRecord &sublayer = copy.sublayer(), &source = copy.source;
  const auto gains = [](const SublayerRecord& s) {
    return absl::StrCat("residual_gain ", s.residual_gain, ", skip_gain ", s.skip_gain);
  };
  if (copy.plan.Residuals(sublayer.stack) > 1) return "mixes residual streams";
  if (copy.plan.ReadsBlocks(sublayer.stack)) return "reads sums of blocks, which other sublayers then make";
  if (copy.number == 0 && copy.plan.Reach(copy.parameter.sublayer) != copy.source_reach) {
    return "sees other tokens than in the checkpoint (model.block.window, global_every)";
  }
  if (sublayer.norm != source.norm) return "has its norm at another place than in the checkpoint";
  const bool same = sublayer.residual_gain == source.residual_gain && sublayer.skip_gain == source.skip_gain;
  const bool one = sublayer.residual_gain == 1 && sublayer.skip_gain == 0;
  if (sublayer.norm != NormPlacement::kPost && !(same && one)) {
    return absl::StrCat("multiplies the residual stream (", gains(sublayer),
                        "), and no norm behind removes the factor");
  }
  const bool has_other_input = source.skip_gain != 0 || sublayer.skip_gain != 0 || sublayer.second_gain != 0;
  if (!same && has_other_input) return absl::StrCat("has ", gains(sublayer), "; in the checkpoint ", gains(source));
  return "";
}

absl::Status CanStartAtZero(const Copy& copy) {
  const std::string change = LossChange(copy);
  if (change.empty()) return absl::OkStatus();
  return FailedPreconditionError("layers that begin with branches of 0 would change the loss: ",
                                 copy.plan.SublayerName(copy.parameter.sublayer), " ", change);
}

// From which of the checkpoint's parameters one starts.
struct Origin {
  std::string name;
  int64_t copy = 0, copies = 0;  // of its layer: from 0; 0 copies: it is of no layer
};

Origin OriginOf(const std::string& parameter, const std::map<std::string, int64_t>& before,
                const std::map<std::string, int64_t>& after) {
  const std::optional<LayerName> name = ParseLayerName(parameter);
  if (!name || !before.contains(name->stack)) return {.name = parameter};
  const int64_t m = before.at(name->stack), n = after.at(name->stack), layer = name->layer * m / n;
  const auto first_from = [m, n](int64_t source) { return (source * n + m - 1) / m; };  // ⌈source·n/m⌉
  return {.name = absl::StrCat(name->stack, kLayers, layer, name->rest),
          .copy = name->layer - first_from(layer),
          .copies = first_from(layer + 1) - first_from(layer)};
}

absl::Status CompareShapes(const CheckpointParameter& stored, const CheckpointParameter& parameter) {
  if (stored.rows == parameter.rows && stored.columns == parameter.columns && stored.is_vector == parameter.is_vector) {
    return absl::OkStatus();
  }
  return FailedPreconditionError("the checkpoint's ", stored.name, " has the shape [", stored.rows, ", ",
                                 stored.columns, "], the model's ", parameter.name, " [", parameter.rows, ", ",
                                 parameter.columns, "]");
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
  if (factor == 1 && offset == 0) return;
  for (int64_t i = 0; i < weights.size; ++i) weights[i] = factor * weights[i] + offset;
}

absl::StatusOr<std::vector<DeepenedParameter>> DeepenedParameters(const ModelPlan& from, const ModelPlan& to,
                                                                  DeepeningRule rule) {
  const std::vector<CheckpointParameter> checkpoint = DescribeParameters(from), model = DescribeParameters(to);
  const std::map<std::string, int64_t> before = CountLayers(checkpoint), after = CountLayers(model);
  for (const auto& [stack, layers] : before) {
    const auto found = after.find(stack);
    if (found != after.end() && found->second >= layers) continue;
    return FailedPreconditionError("the checkpoint's ", stack, " has ", layers,
                                   " layers, more than the model's; layers can only be added");
  }
  std::map<std::string, int32_t> by_name;
  for (size_t p = 0; p < checkpoint.size(); ++p) by_name[checkpoint[p].name] = static_cast<int32_t>(p);
  std::vector<DeepenedParameter> starts;
  std::vector<bool> used(checkpoint.size());
  for (size_t p = 0; p < model.size(); ++p) {
    Origin origin = OriginOf(model[p].name, before, after);
    auto found = by_name.find(origin.name);
    if (found == by_name.end()) {  // a stack's first sublayer has no query: a copy takes its layer's feed-forward's
      absl::StrReplaceAll({{".self_attn_res_", ".ffn_res_"}}, &origin.name);
      found = by_name.find(origin.name);
    }
    if (found == by_name.end()) {
      return FailedPreconditionError(
          "the checkpoint has no ", origin.name, ", from which ", model[p].name,
          " would start; method and block must be the checkpoint's, and a stack of no layers, "
          "combined layers (dlcl_pre, dlcl_post) and block.first_norm false cannot be deepened");
    }
    HADAL_RETURN_IF_ERROR(CompareShapes(checkpoint[found->second], model[p]));
    DeepenedParameter start;
    if (origin.copies > 0) {
      const Copy copy{.plan = to,
                      .parameter = to.parameters[p],
                      .source = from.sublayers[from.parameters[found->second].sublayer],
                      .source_reach = from.Reach(from.parameters[found->second].sublayer),
                      .number = origin.copy,
                      .copies = origin.copies};
      if (rule == DeepeningRule::kZero) HADAL_RETURN_IF_ERROR(CanStartAtZero(copy));
      start = rule == DeepeningRule::kZero ? ZeroStart(copy) : SplitStart(copy);
    }
    start.source = found->second;
    starts.push_back(start);
    used[found->second] = true;
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return starts;
  return FailedPreconditionError("the model has no place for the checkpoint's ",
                                 checkpoint[unused - used.begin()].name);
}

}  // namespace hadal
