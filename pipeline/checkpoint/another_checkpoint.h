// What a person is told to try where the checkpoint that they have named is damaged. No other one is taken in its
// place: it would be another model.
#pragma once

#include "absl/status/status.h"

namespace hadal {

// A DataLoss with how to find the run's whole checkpoints behind its message; any other status as it is.
absl::Status AdviseAnotherCheckpoint(const absl::Status& status);

}  // namespace hadal
