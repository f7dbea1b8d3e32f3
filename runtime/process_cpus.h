// The CPUs that this process may use, possibly fewer than the machine has.
// Thread safety: any thread.
#pragma once

namespace hadal {

// Returns the number of CPUs in this process's affinity mask (sched_getaffinity), at least 1.
int ProcessCpus();

}  // namespace hadal
