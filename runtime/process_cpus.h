// The CPUs that this process may use, possibly fewer than the machine has.
// Limitation: processes of one host with a quota each are counted as if they shared one; set their threads then.
// Thread safety: any thread.
#pragma once

#include <optional>

namespace hadal {

// Returns a process's share, at least 1, rounded down: of the `cpus` that it may run on, among `of_mask` processes that
// may run there; at most of the quota, among `of_group` processes that it is for.
int CpuShare(int cpus, int of_mask, std::optional<double> quota, int of_group);

// Returns CpuShare of the calling thread's affinity mask (sched_getaffinity) and of the quota of this process's control
// groups (control_group.h). Blocking: reads small files of /proc and /sys.
int ProcessCpus(int of_mask = 1, int of_group = 1);

}  // namespace hadal
