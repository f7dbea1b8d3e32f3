// How much memory this host can still give: the smaller of what the kernel calls available and what is left below the limit of
// the process's control group (containers, Slurm jobs).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hadal {

// The bytes of a line like "MemAvailable:   123 kB" of /proc/meminfo; none where there is no such line.
std::optional<int64_t> MemInfoBytes(std::string_view text, std::string_view name);

// Bytes left under a control group's limit ("max": none), used memory being what its memory.current says.
std::optional<int64_t> BytesBelowLimit(std::string_view limit, std::string_view used);

// None where the system does not say. Reads a few small files.
std::optional<int64_t> AvailableHostMemoryBytes();

// The most physical memory this process has held so far; 0 where the system does not say.
int64_t PeakResidentBytes();

}  // namespace hadal
