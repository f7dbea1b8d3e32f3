// How much memory the control groups (cgroups) of this process leave: those of containers, Slurm jobs, systemd's
// slices.
//
// A limit may be on the process's own group or on any group above: a Slurm job's limit is two levels above its tasks. A
// group's use includes pages of files, for example of a mapped corpus. The kernel gives back those not used lately
// before it ends a process, so they count as free here.
// Versions 1 and 2 of control groups. Limitation: groups mounted elsewhere than `mount` are not seen.
// Threads: any. Blocking: while it reads the kernel's small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hadal {

// The bytes left under the tightest limit of the groups in `membership` (the text of /proc/self/cgroup) and of all
// groups above them; nullopt without any limit. `mount`: where control groups are mounted. Reads three small files per
// level.
std::optional<int64_t> ControlGroupBytes(std::string_view membership, const std::string& mount = "/sys/fs/cgroup");

}  // namespace hadal
