#include "pipeline/graph_cache.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace hadal {

void GraphCache::Run(Device& device, const GraphKey& key, const LaunchAll& launch) {
  Entry& entry = entries_[key];
  const bool records = entry.seen && entry.graph == nullptr && graphs_ < most_ && !full_;
  entry.seen = true;
  if (records) full_ = !Record(device, entry, launch);
  if (entry.graph == nullptr) return launch(/*recording=*/false);
  device.Launch(*entry.graph);
}

bool GraphCache::Record(Device& device, Entry& entry, const LaunchAll& launch) {
  const int64_t free_bytes = device.FreeBytes();
  if (free_bytes < keep_free_bytes_) return false;
  device.BeginCapture();
  launch(/*recording=*/true);
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device.EndCapture();
  if (!graph.ok()) return false;
  entry.graph = *std::move(graph);
  ++graphs_;
  bytes_ += std::max<int64_t>(free_bytes - device.FreeBytes(), 0);
  return true;
}

}  // namespace hadal
