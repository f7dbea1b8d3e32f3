#include "pipeline/checkpoint/checkpoint_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal {
namespace {

std::string ShapeText(const CheckpointParameter& parameter) {
  return parameter.is_vector ? absl::StrCat("[", parameter.rows, "]")
                             : absl::StrCat("[", parameter.rows, ", ", parameter.columns, "]");
}

}  // namespace

const Vector& SliceState::view(StateKind kind) const {
  switch (kind) {
    case StateKind::kWeight:
      return weight;
    case StateKind::kFirstMoment:
      return first_moment;
    case StateKind::kSecondMoment:
      return second_moment;
  }
  return weight;
}

int64_t CheckpointParameter::slice_elements(int64_t slice) const {
  HADAL_CHECK_GE(slice, 0);
  HADAL_CHECK_LT(slice, slices());
  return std::min(kSliceElements, elements() - slice * kSliceElements);
}

std::vector<CheckpointParameter> DescribeParameters(const ModelPlan& plan) {
  std::vector<CheckpointParameter> result;
  result.reserve(plan.parameters.size());
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    const ParameterRecord& record = plan.parameters[p];
    result.push_back({.name = plan.ParameterName(p),
                      .rows = record.rows,
                      .columns = record.columns,
                      .is_vector = record.is_vector()});
  }
  return result;
}

absl::Status CompareParameters(const std::vector<CheckpointParameter>& checkpoint,
                               const std::vector<CheckpointParameter>& model) {
  const size_t both = std::min(checkpoint.size(), model.size());
  for (size_t p = 0; p < both; ++p) {
    if (checkpoint[p] == model[p]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint is of another model: its parameter ", p, " is ", checkpoint[p].name, " ",
                     ShapeText(checkpoint[p]), ", the model's is ", model[p].name, " ", ShapeText(model[p]),
                     "; compare the config with the one in the checkpoint's manifest"));
  }
  if (checkpoint.size() != model.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint is of another model: it has ", checkpoint.size(), " parameters, the model ",
                     model.size(), "; compare the config with the one in the checkpoint's manifest"));
  }
  return absl::OkStatus();
}

std::string StateKey(StateKind kind, const std::string& parameter_name, int64_t slice) {
  constexpr std::array<const char*, kStateKinds.size()> kPrefixes = {"weight", "adam_m", "adam_v"};
  return absl::StrCat(kPrefixes[static_cast<size_t>(kind)], "/", parameter_name, "/", slice);
}

}  // namespace hadal
