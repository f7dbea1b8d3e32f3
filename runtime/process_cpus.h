// The CPUs that this process may use, possibly fewer than the machine has.
// Limitation: if processes of one host each have a quota of their own (one container per rank), their shares are
// computed as if they shared one quota; set runtime.threads then.
// Thread safety: any thread.
#pragma once

#include <optional>

namespace hadal {

// Returns max(1, ⌊min(cpus / sharing_cpus, quota / sharing_quota)⌋), the share of one process. `cpus`: the number of
// CPUs that it may run on, as may `sharing_cpus` processes in all. `quota`: CPUs that its control groups grant to
// `sharing_quota` processes together; nullopt: no limit.
int CpuShare(int cpus, int sharing_cpus, std::optional<double> quota, int sharing_quota);

// Returns CpuShare of the calling thread's affinity mask (sched_getaffinity) and of the quota of this process's control
// groups (control_group.h). Blocking: reads small files of /proc and /sys.
int ProcessCpus(int sharing_cpus = 1, int sharing_quota = 1);

}  // namespace hadal
