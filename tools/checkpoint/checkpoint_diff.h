// `hadal checkpoint diff` compares the state of two checkpoints and prints where and by how much they differ.
//
// State is weights and moments; progress (step, update) is reported if it differs, but does not make checkpoints
// different. Equal means bit-equal (a NaN equals the same NaN, 0 differs from -0). Norms and maxima are computed in
// double, in element order:
//   max |Δ| = max_i |a_i - b_i|        relative = ‖a - b‖ / ‖a‖
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

struct CheckpointDiffOptions {
  bool weights_only = false;
  int64_t lines = 20;  // parameters listed, most different first. 0: all
};

// Prints "identical" or the differences. Returns true if identical. `a`, `b`: a checkpoint, or a run's newest. Memory:
// two slices.
// Errors: those of OpenCheckpoint and CheckpointReader. Different models count as a difference, not as an error.
absl::StatusOr<bool> DiffCheckpoints(const std::string& a, const std::string& b, const CheckpointDiffOptions& options,
                                     std::ostream& out);

}  // namespace hadal
