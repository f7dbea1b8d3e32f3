// How much memory the control groups (cgroups) of this process leave it: containers, Slurm jobs, systemd's slices.
//
// A limit may lie on the process's own group or on any above it: a Slurm job's lies two levels above its tasks. What a group uses counts the
// pages of files too, a mapped corpus for one; those that nobody touched lately the kernel gives back before it ends a process, so they
// count as free here.
// Versions 1 and 2 of control groups. Limitation: groups mounted elsewhere than `mount` are not seen.
// Threads: any. Blocking: for the kernel's own small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hadal {

// The bytes left under the tightest limit of the groups that `membership` (the text of /proc/self/cgroup) names, and of all above them; none
// where nothing limits. `mount`: where control groups are mounted. Reads three small files per level.
std::optional<int64_t> ControlGroupBytes(std::string_view membership, const std::string& mount = "/sys/fs/cgroup");

}  // namespace hadal
