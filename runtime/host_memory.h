// How much memory this host can still give: the smaller of what the kernel calls available and what the process's
// control groups leave (control_group.h).
// Threads: any. Blocking: while it reads the kernel's small files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hadal {

// The bytes of a line like "MemAvailable: 123 kB" of /proc/meminfo; nullopt where there is no such line.
std::optional<int64_t> MemInfoBytes(std::string_view text, std::string_view name);

// Nullopt where the system does not say. Reads a few small files.
std::optional<int64_t> AvailableHostMemoryBytes();

// The most physical memory that this process has had at once so far; 0 where the system does not say.
int64_t PeakResidentBytes();

// The part of this process's memory that the system cannot take back: anonymous and shared memory. Pages of files (the
// program, libraries, a mapped corpus) do not count: they are in the page cache, shared by all processes of a host, and
// how many of them a process has mapped is chance. 0 where the system does not say.
int64_t HeldBytes();

// Gives memory that malloc keeps free back to the system. oneDNN allocates packing buffers of a megabyte or more in
// every product, and small pieces left between them prevent holes from merging: a heap of 2 MB can grow to 25 MB.
// Blocking: 0.2 ms.
void ReturnFreeMemory();

}  // namespace hadal
