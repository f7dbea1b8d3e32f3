// How many CPUs this process may use, which may be fewer than the machine has.
// Threads: safe.
#pragma once

namespace hadal {

// CPUs this process may run on (sched_getaffinity), at least 1.
int ProcessCpus();

}  // namespace hadal
