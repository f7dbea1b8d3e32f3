// Detects whether a launcher started this process as one of several that will not find each other.
//
// `srun` without an MPI plugin (or with --mpi=pmi2, which Debian's Open MPI does not support) starts every task as if
// it were alone; each would train the whole model into the same run directory. So does torchrun, whose processes meet
// through PyTorch's own store. Both say how many tasks they started; that is compared with the number of ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

// A process's environment: the value of a variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Whether a launcher that MPI knows started this process (mpirun, or srun with PMIx).
bool StartedForMpi(const Environment& environment);

// This process's number among those that its launcher started.
struct StartedTask {
  int task = 0;
  int tasks = 1;
};
// The task of a Slurm job step, or of torchrun; nullopt if it did not start this process.
std::optional<StartedTask> TaskOfStep(const Environment& environment);
std::optional<StartedTask> TaskOfTorchrun(const Environment& environment);

// OK if as many ranks found each other as were started. Errors: InvalidArgument, with what to try; on other tasks than
// the first the message is empty, so that it appears once.
absl::Status CheckTasks(const Environment& environment, int ranks);

// Compares the launcher's variables for this process's place with what MPI found: one line each, such as "SLURM_PROCID
// says rank 3, MPI says 2". MPI's value is used. Empty if they agree or are not set; variables that describe mpirun's
// daemon instead of the rank are ignored.
std::vector<std::string> PlaceDisagreements(const Environment& environment, int rank, int local_rank);

}  // namespace hadal
