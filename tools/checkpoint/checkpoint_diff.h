// `hadal checkpoint diff`: are two checkpoints the same state, and if not, where and by how much?
//
// Equal means bit-equal (a NaN equals the same NaN, 0 differs from -0). Norms and maxima are taken in double, in
// element order:
//   max |Δ| = max_i |a_i - b_i|        relative = ‖a - b‖ / ‖a‖
// Progress (step, update) is reported when it differs and does not make checkpoints different: state is weights and
// moments.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

struct CheckpointDiffOptions {
  bool weights_only = false;
  int64_t lines = 20;  // parameters listed; the worst come first. 0: all
};

// Prints "identical" or the differences. Returns true when identical. Memory: two slices.
// Errors: those of CheckpointReader; different models are no error but a difference.
absl::StatusOr<bool> DiffCheckpoints(const std::string& a, const std::string& b, const CheckpointDiffOptions& options,
                                     std::ostream& out);

}  // namespace hadal
