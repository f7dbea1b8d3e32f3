// The free memory and the quota of CPUs that control groups (cgroups) leave to this process: in a container, a Slurm
// job, a systemd slice.
//
// A limit may be set on the process's own group or on any group above it; Slurm sets it two levels above its tasks. A
// group's usage includes pages of files, such as a mapped corpus. The kernel evicts inactive file pages before it kills
// a process, so they count as free.
// Supports versions 1 and 2. Limitation: groups that are not mounted under `mount` are ignored.
// Thread safety: any thread. Blocking: reads the kernel's small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hadal {

// Returns the tightest quota, in CPUs ("docker run --cpus 1.5": 1.5), of the groups in `membership` (the text of
// /proc/self/cgroup) and of all groups above them; nullopt if there is none. `mount`: where control groups are mounted.
std::optional<double> ControlGroupCpus(std::string_view membership, const std::string& mount = "/sys/fs/cgroup");

// Returns the bytes of memory left under the tightest limit of the same groups; nullopt if there is no limit. Reads
// three small files per level.
std::optional<int64_t> ControlGroupBytes(std::string_view membership, const std::string& mount = "/sys/fs/cgroup");

}  // namespace hadal
