// What a checkpoint contains: the state of every slice of every parameter, under keys that do not depend on the layout.
//
//   weight/<parameter name>/<slice>   float32 [elements of the slice]
//   adam_m/<parameter name>/<slice>   Adam's first moment, same shape
//   adam_v/<parameter name>/<slice>   Adam's second moment, same shape
//
// <slice> is a decimal number; slice k of a parameter holds its row-major elements [k·2^20, min((k+1)·2^20, elements)).
// A key names no rank, stage or replica: the slice's owner writes it, and any later owner can read it.
// Thread safety: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "layers/model_plan.h"
#include "runtime/tensor.h"

namespace hadal {

enum class StateKind : int32_t { kWeight, kFirstMoment, kSecondMoment };
inline constexpr std::array kStateKinds = {StateKind::kWeight, StateKind::kFirstMoment, StateKind::kSecondMoment};

// One slice's state in memory. Writers leave out the kinds whose view is empty, and readers do not read them.
struct SliceState {
  int32_t parameter = 0;  // index in the plan
  int64_t slice = 0;
  Vector weight;         // [elements of the slice]
  Vector first_moment;   // the same
  Vector second_moment;  // the same

  const Vector& view(StateKind kind) const;
};

// Name and shape of one parameter. The manifest records them, so that tools need no config.
struct CheckpointParameter {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 1;
  bool is_vector = false;  // exported as a one-dimensional tensor

  int64_t elements() const { return rows * columns; }
  int64_t slices() const { return (elements() + kSliceElements - 1) / kSliceElements; }
  // Elements of slice `slice`: 2^20, or the rest in the last one.  REQUIRES: 0 ≤ slice < slices().
  int64_t slice_elements(int64_t slice) const;
  bool operator==(const CheckpointParameter&) const = default;
};

// Lists the parameters of a model, in the plan's order.
std::vector<CheckpointParameter> DescribeParameters(const ModelPlan& plan);

// OK if the two lists are equal; otherwise FailedPrecondition naming the first difference.
absl::Status CompareParameters(const std::vector<CheckpointParameter>& checkpoint,
                               const std::vector<CheckpointParameter>& model);

// "weight/decoder.layers.0.fc1.weight/0".
std::string StateKey(StateKind kind, const std::string& parameter_name, int64_t slice);

}  // namespace hadal
