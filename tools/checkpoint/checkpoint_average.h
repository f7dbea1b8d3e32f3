// `hadal checkpoint average` writes the mean of several checkpoints' weights as a new checkpoint.
//
//   w = (1/n) Σ_k w_k,   summed in double in the given order, rounded once to float
// The result holds weights only, because a mean of Adam's moments is not the state of any run. So training cannot
// resume from it, but a new run can start from it (--init-from), and it can be used for translation, scoring and
// export. Progress, configuration and vocabularies are copied from the input with the most steps; there is no
// validation score. Source of the practice: Vaswani et al. 2017, section 6.1.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

// Which checkpoints of a run to select: the newest `last`, or the `best` with the lowest validation nll. Exactly one of
// the two is > 0.
struct CheckpointSelection {
  int64_t last = 0;
  int64_t best = 0;
};
// Returns the selected checkpoints, oldest first. Skips checkpoints that cannot be opened and reports them on `out`.
// Errors: FailedPrecondition if the run has fewer (that can be opened, and for `best` have a validation score);
// NotFound if a run in progress has removed one since it was listed: select again.
absl::StatusOr<std::vector<std::string>> SelectCheckpoints(const std::string& run_directory,
                                                           const CheckpointSelection& selection, std::ostream& out);

// Writes the mean of `inputs` (at least one checkpoint directory) to `directory`, which must not exist and appears
// whole or not at all. Memory: three slices.
// Errors: AlreadyExists; FailedPrecondition for different models or vocabularies; InvalidArgument if two inputs are the
// same checkpoint; those of CheckpointReader.
absl::Status AverageCheckpoints(const std::vector<std::string>& inputs, const std::string& directory,
                                std::ostream& out);

}  // namespace hadal
