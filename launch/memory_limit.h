// What a rank may take where the config sets no limit: its share of what its GPU, or its host, has free.
//
//   CPU   free bytes of the host / ranks on it
//   GPU   free bytes of the device / ranks that share it, less what the driver, CUDA graphs and NCCL may take of it
//         (kernels/device/driver_memory.h), and what the rank itself has allocated there already (own_memory.h)
// What counts against it is LimitedBytes (pipeline/memory_fit.h). All ranks have one limit, the smallest, so that all
// choose the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace hadal {

// What a rank knows for itself, once every rank has opened its device.
struct MemoryFacts {
  static constexpr int64_t kUnknown = int64_t{1} << 62;

  std::string device;      // Device::Identity; empty: the CPU
  int64_t free_bytes = 0;  // of the device, or of the host; kUnknown
  int ranks_on_host = 1;
};

// `driver_bytes`: DriverBytes of the plan (pipeline/memory_fit.h), what a rank leaves free of its device. At least 1,
// since 0 is no limit.
int64_t MemoryLimitBytes(std::span<const MemoryFacts> ranks, int64_t driver_bytes);

// A sentence for people where such a limit leaves a rank of a GPU nothing; else "".
std::string NothingIsLeft(std::span<const MemoryFacts> ranks, int64_t driver_bytes);

// A sentence for people where NCCL took more of a rank's device than was left for it; else "".
std::string NcclTookMore(int64_t took_bytes, int links, int rank);

}  // namespace hadal
