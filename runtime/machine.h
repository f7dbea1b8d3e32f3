// Facts about this host: its name, and the CPUs and the free memory that this process may use under the limits of its
// control groups (cgroups), as in a container, a Slurm job or a systemd slice.
//
// A limit may be set on the process's own group or on any group above it; Slurm sets it two levels above its tasks. A
// group's usage includes pages of files, such as a mapped corpus. The kernel evicts inactive file pages before it kills
// a process, so they count as free. Supports control groups of versions 1 and 2.
// Limitations: groups that are not mounted under `mount` are ignored. If each process of a host has its own quota (one
// container per rank), ProcessCpus divides it as if all shared it; set pipeline.threads in the config then.
// Thread safety: any thread. Blocking: reads the kernel's small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hadal {

// Returns the machine's host name, or "" if the system does not report it.
std::string HostName();

// Returns the tightest quota, in CPUs ("docker run --cpus 1.5": 1.5), of the groups in `membership` (the text of
// /proc/self/cgroup) and of all groups above them; nullopt if there is none. `mount`: where control groups are mounted.
std::optional<double> ControlGroupCpus(std::string_view membership, const std::string& mount = "/sys/fs/cgroup");

// Returns the least number of bytes left under the memory limit of any of the same groups; nullopt if there is no
// limit. Reads three small files per level.
std::optional<int64_t> ControlGroupBytes(std::string_view membership, const std::string& mount = "/sys/fs/cgroup");

// Returns one process's share: max(1, ⌊min(cpus / sharing_cpus, quota / sharing_quota)⌋). `cpus`: the number of CPUs
// that the process may run on; `sharing_cpus`: the number of processes, this one included, that may run on them.
// `quota`: the CPUs that control groups grant to `sharing_quota` processes together; nullopt: no limit.
int CpuShare(int cpus, int sharing_cpus, std::optional<double> quota, int sharing_quota);

// Returns CpuShare of the calling thread's affinity mask (sched_getaffinity) and of the quota of this process's control
// groups.
int ProcessCpus(int sharing_cpus = 1, int sharing_quota = 1);

// Returns the bytes of a line like "MemAvailable: 123 kB" of /proc/meminfo; nullopt if there is no such line.
std::optional<int64_t> MemInfoBytes(std::string_view text, std::string_view name);

// Returns the free memory in bytes, as defined above; nullopt if the system does not report it. Reads a few small
// files. `proc`, `control_groups`: mount points.
std::optional<int64_t> AvailableHostMemoryBytes(const std::string& proc = "/proc",
                                                const std::string& control_groups = "/sys/fs/cgroup");

// Returns the process's peak resident memory so far; 0 if the system does not report it.
int64_t PeakResidentBytes();

// Returns the process's anonymous and shared memory, which the system cannot reclaim; 0 if the system does not report
// it. Mapped files (the program, libraries, a corpus) do not count: their pages are in the page cache, which all
// processes of a host share.
int64_t HeldBytes();

// Returns to the system the freed memory that malloc has kept. Blocking: 0.2 ms.
void ReturnFreeMemory();

}  // namespace hadal
