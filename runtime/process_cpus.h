// The CPUs that this process may use, possibly fewer than the machine has.
// Limitation: if each process of a host has its own quota (one container per rank), ProcessCpus divides it as if all
// shared it; set runtime.threads in the config then.
// Thread safety: any thread.
#pragma once

#include <optional>

namespace hadal {

// Returns one process's share: max(1, ⌊min(cpus / sharing_cpus, quota / sharing_quota)⌋). `cpus`: the number of CPUs
// that the process may run on; `sharing_cpus`: the number of processes, this one included, that may run on them.
// `quota`: the CPUs that control groups grant to `sharing_quota` processes together; nullopt: no limit.
int CpuShare(int cpus, int sharing_cpus, std::optional<double> quota, int sharing_quota);

// Returns CpuShare of the calling thread's affinity mask (sched_getaffinity) and of the quota of this process's control
// groups (control_group.h). Blocking: reads small files of /proc and /sys.
int ProcessCpus(int sharing_cpus = 1, int sharing_quota = 1);

}  // namespace hadal
