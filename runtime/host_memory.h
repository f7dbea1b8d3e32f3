// How much memory this host can still give: the smaller of what the kernel calls available and what the process's control groups leave it
// (control_group.h).
// Threads: any. Blocking: for the kernel's own small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hadal {

// The bytes of a line like "MemAvailable:   123 kB" of /proc/meminfo; none where there is no such line.
std::optional<int64_t> MemInfoBytes(std::string_view text, std::string_view name);

// None where the system does not say. Reads a few small files.
std::optional<int64_t> AvailableHostMemoryBytes();

// The most physical memory this process has had at once so far, whatever it was; 0 where the system does not say.
int64_t PeakResidentBytes();

// What of this process's memory the system cannot take back: anonymous and shared memory. Not pages of files (the program, libraries, a
// mapped corpus): those are the page cache's, one for all processes of a host, and how many of them a process has mapped is chance.
// 0 where the system does not say.
int64_t HeldBytes();

// Gives back to the system what malloc keeps free. oneDNN allocates packing buffers of a megabyte or more in every product, and freed
// splinters between them keep the holes apart: a heap of 2 MB then takes up to 25. Blocking: 0.2 ms.
void ReturnFreeMemory();

}  // namespace hadal
