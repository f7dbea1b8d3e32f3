// Did whoever started this process start others with it, and will they find each other?
//
// `srun` without an MPI plugin (or with --mpi=pmi2, which Debian's Open MPI does not speak) starts every task as if it
// were alone: each would train the whole model into the same run directory; so does torchrun, whose processes meet by a
// store of PyTorch's own. Both say how many tasks they started; that is compared with the ranks found.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

// A process's environment: the value of a variable, or null.
using Environment = std::function<const char*(const char* name)>;

// A launcher that MPI knows started this process (mpirun, or srun with PMIx).
bool StartedForMpi(const Environment& environment);

// What a launcher says of this process: its number among those that it started.
struct StartedTask {
  int task = 0;
  int tasks = 1;
};
// A job step of Slurm, torchrun; none where it did not start this process.
std::optional<StartedTask> TaskOfStep(const Environment& environment);
std::optional<StartedTask> TaskOfTorchrun(const Environment& environment);

// OK where as many ranks found each other as were started. Errors: InvalidArgument, with what to try; on other tasks
// than the first its message is empty, so that people read it once.
absl::Status CheckTasks(const Environment& environment, int ranks);

// What the launcher's variables say of this process's place against what MPI found: "SLURM_PROCID says rank 3, MPI says
// 2", a line each. MPI's word counts. Empty where they agree or say nothing; what speaks of mpirun's daemon instead of
// the rank is passed over.
std::vector<std::string> PlaceDisagreements(const Environment& environment, int rank, int local_rank);

}  // namespace hadal
