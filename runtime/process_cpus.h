// The CPUs that this process may use, possibly fewer than the machine has.
// Thread safety: any thread.
#pragma once

namespace hadal {

// Returns how many of the CPUs in this process's affinity mask (sched_getaffinity) it can use, at least 1: its share
// among `of_mask` processes that have the same mask, and of the quota of its control group (control_group.h), rounded
// down, among `of_group` processes. Blocking: reads the kernel's small files.
int ProcessCpus(int of_mask = 1, int of_group = 1);

}  // namespace hadal
