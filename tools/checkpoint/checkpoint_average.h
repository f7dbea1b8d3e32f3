// `hadal checkpoint average`: the mean of several checkpoints' weights, as a checkpoint of its own.
//
//   w = (1/n) Σ_k w_k,   summed in double in the given order, rounded once to float
// The result holds weights only: a mean of Adam's moments would be of no run, so training cannot resume from it (a new
// run may start from it with --init-from); translating, scoring and exporting can. It carries the progress, the
// configuration and the vocabularies of the input with the most steps, and no validation score. Source of the practice:
// Vaswani et al. 2017, section 6.1.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

// The newest `last`, or the `best` with the lowest validation nll, of a run, oldest first. Exactly one of the two is >
// 0. Checkpoints that do not open are left out, which `out` is told.
// Errors: FailedPrecondition when the run has fewer (that open, and for `best` that were validated).
struct CheckpointSelection {
  int64_t last = 0;
  int64_t best = 0;
};
absl::StatusOr<std::vector<std::string>> SelectCheckpoints(const std::string& run_directory,
                                                           const CheckpointSelection& selection, std::ostream& out);

// Writes the mean of `inputs` (checkpoint directories, at least one) to `directory`, which must not exist and appears
// whole or not at all. Memory: three slices. Errors: AlreadyExists, FailedPrecondition for different models or
// vocabularies, InvalidArgument where two inputs are the same checkpoint, those of CheckpointReader.
absl::Status AverageCheckpoints(const std::vector<std::string>& inputs, const std::string& directory,
                                std::ostream& out);

}  // namespace hadal
