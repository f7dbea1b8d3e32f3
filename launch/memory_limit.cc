#include "launch/memory_limit.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"

namespace hadal {
namespace {

struct SharedDevice {
  int64_t free_bytes = MemoryFacts::kUnknown;  // the smallest value that its ranks report
  int ranks = 0;
};

// By identity.
std::map<std::string, SharedDevice> DevicesOf(std::span<const MemoryFacts> ranks) {
  std::map<std::string, SharedDevice> devices;
  for (const MemoryFacts& rank : ranks) {
    if (rank.device.empty()) continue;
    SharedDevice& device = devices[rank.device];
    device.free_bytes = std::min(device.free_bytes, rank.free_bytes);
    ++device.ranks;
  }
  return devices;
}

int64_t LimitOn(const SharedDevice& device, int64_t driver_bytes) {
  return device.free_bytes / device.ranks - driver_bytes + cuda::OwnMemory::kDeviceBytes;
}

}  // namespace

int64_t MemoryLimitBytes(std::span<const MemoryFacts> ranks, int64_t driver_bytes) {
  int64_t limit = MemoryFacts::kUnknown;
  for (const MemoryFacts& rank : ranks) {
    if (rank.device.empty()) limit = std::min(limit, rank.free_bytes / rank.ranks_on_host);
  }
  for (const auto& [identity, device] : DevicesOf(ranks)) limit = std::min(limit, LimitOn(device, driver_bytes));
  return std::max<int64_t>(limit, 1);
}

std::string NothingIsLeft(std::span<const MemoryFacts> ranks, int64_t driver_bytes) {
  for (const auto& [identity, device] : DevicesOf(ranks)) {
    if (LimitOn(device, driver_bytes) >= 1) continue;
    return absl::StrFormat(
        "%s has %d MiB free for %d rank(s), and of each rank's share %d MiB are left to the driver, CUDA graphs and "
        "NCCL: nothing remains. Start fewer ranks on it, set pipeline.graphs = \"off\", or "
        "pipeline.memory_limit_bytes to the bytes that a rank may use nevertheless",
        identity, device.free_bytes >> 20, device.ranks, driver_bytes >> 20);
  }
  return "";
}

std::string NcclTookMore(int64_t took_bytes, int connections, int rank) {
  const int64_t left_bytes = cuda::DriverMemory::NcclBytes(connections);
  if (took_bytes <= left_bytes) return "";
  return absl::StrFormat(
      "rank %d: NCCL took %d MiB of the GPU's memory, and %d MiB were left for its %d connections; where memory is "
      "short, set pipeline.memory_limit_bytes lower by the difference, or NCCL_BUFFSIZE below 4 MiB",
      rank, took_bytes >> 20, left_bytes >> 20, connections);
}

}  // namespace hadal
