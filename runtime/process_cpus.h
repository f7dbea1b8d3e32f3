// How many CPUs there are for this process: not how many the machine has.
// Threads: safe.
#pragma once

namespace hadal {

// CPUs this process may run on (sched_getaffinity), at least 1.
int ProcessCpus();

}  // namespace hadal
