// Free memory of this host: the smaller of what the kernel calls available and what the process's control groups leave
// (control_group.h).
// Thread safety: any thread. Blocking: reads the kernel's small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hadal {

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

// Gives the free memory that malloc keeps back to the system. Blocking: 0.2 ms.
void ReturnFreeMemory();

}  // namespace hadal
