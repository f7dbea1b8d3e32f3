#include "pipeline/checkpoint/deepening.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

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

}  // namespace

absl::StatusOr<std::vector<int32_t>> DeepenedParameters(const std::vector<CheckpointParameter>& checkpoint,
                                                        const std::vector<CheckpointParameter>& model) {
  const std::map<std::string, int64_t> before = CountLayers(checkpoint), after = CountLayers(model);
  for (const auto& [stack, layers] : before) {
    const auto found = after.find(stack);
    if (found != after.end() && found->second >= layers) continue;
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint's ", stack, " has ", layers,
                                                      " layers, more than the model's; layers can only be added"));
  }
  std::map<std::string, int32_t> by_name;
  for (size_t p = 0; p < checkpoint.size(); ++p) by_name[checkpoint[p].name] = static_cast<int32_t>(p);
  std::vector<int32_t> sources;
  std::vector<bool> used(checkpoint.size());
  for (const CheckpointParameter& parameter : model) {
    std::string source = parameter.name;
    const std::optional<LayerName> name = ParseLayerName(parameter.name);
    if (name && before.contains(name->stack)) {
      const int64_t layer = name->layer * before.at(name->stack) / after.at(name->stack);
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
    sources.push_back(found->second);
    used[found->second] = true;
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return sources;
  return absl::FailedPreconditionError(
      absl::StrCat("the model has no place for the checkpoint's ", checkpoint[unused - used.begin()].name));
}

}  // namespace hadal
