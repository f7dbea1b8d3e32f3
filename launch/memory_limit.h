// A rank's memory limit if the config sets none: its share of the free memory of its GPU or host.
//
//   CPU   free bytes of the host / ranks on it
//   GPU   free bytes of the device / ranks that share it
//         − the bytes that the driver, CUDA graphs and NCCL may take for a rank (kernels/cuda_host/driver_memory.h)
//         + the bytes that opening the device has allocated for the rank (kernels/cuda_host/own_memory.h)
// LimitedBytes (pipeline/engine/memory_fit.h) defines what counts against the limit. All ranks use the smallest of
// their limits, so that all choose the same layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace hadal {

// One rank's facts, after every rank has opened its device.
struct MemoryFacts {
  static constexpr int64_t kUnknown = int64_t{1} << 62;

  std::string device;      // Device::Identity; empty: the CPU
  int64_t free_bytes = 0;  // of the device or the host; kUnknown sets no limit
  int ranks_on_host = 1;   // ranks on this rank's host
};

// `driver_bytes`: DriverBytes of the plan (pipeline/engine/memory_fit.h), which a rank must leave free on its device.
// Returns at least 1, because 0 means no limit.
int64_t MemoryLimitBytes(std::span<const MemoryFacts> ranks, int64_t driver_bytes);

// Returns a notice for the user if on some GPU each rank's limit by the formula above would be below 1; else "".
std::string NothingIsLeft(std::span<const MemoryFacts> ranks, int64_t driver_bytes);

// Returns a notice for the user if NCCL allocated more on the device of `rank`, for `connections` connections, than
// DriverMemory::NcclBytes (kernels/cuda_host/driver_memory.h) had left for it; else "".
std::string NcclTookMore(int64_t took_bytes, int connections, int rank);

}  // namespace hadal
