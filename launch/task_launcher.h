// Detects whether a launcher started this process as one of several that cannot find each other.
//
// `srun` without an MPI plugin (or with --mpi=pmi2, which Debian's Open MPI does not support) starts every task as if
// it were alone; each would train the whole model into the same run directory. torchrun does the same, because its
// processes meet through PyTorch's own store, and so does the mpirun of another MPI than this program's: MPICH's for a
// program of Open MPI, often also that of Open MPI 5 for a program of Open MPI 4. These launchers set the number of
// tasks in the environment; CheckTasks compares it with the number of ranks. (One that sets only PMIX_RANK passes.)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Whether a launcher that MPI supports started this process (mpirun, or srun with PMIx).
bool StartedForMpi(const Environment& environment);

// Whether this process is the first that mpirun or srun started, or was started alone. Does not need MPI_Init.
bool IsFirstTask(const Environment& environment);

// Returns OK if the launcher started as many processes as there are ranks in MPI's world. Errors: InvalidArgument, with
// a remedy; the message is empty on all tasks but the first, so that it is printed once.
absl::Status CheckTasks(const Environment& environment, int ranks);

// Returns why this process must not read standard input, with a remedy; "" if it may. It must not under mpirun of Open
// MPI 5.0: 5.0.11 does not pass the end of its input on to rank 0, which would wait forever; 5.0.8 repeats parts of
// long input.
std::string StandardInputFault(const Environment& environment);

// Compares the launcher's variables for this process's place with MPI's. Returns one line per difference, such as
// "SLURM_PROCID says rank 3, MPI says 2", for the log: hadal uses MPI's value. Ignores variables that are not set or
// that describe mpirun's daemon instead of the rank.
std::vector<std::string> RankDisagreements(const Environment& environment, int rank, int local_rank);

}  // namespace hadal
