#include "pipeline/stage/graph_cache.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/check.h"

namespace hadal {

void GraphCache::Run(Device& device, const GraphKey& key, const LaunchAll& launch, const Cut& between) {
  Entry& entry = entries_[key];
  const int64_t parts = HasParts(key.phase) ? kMostParts : 1;
  const bool records = entry.seen && entry.parts.empty() && graphs_ + parts <= most_ && !full_;
  entry.seen = true;
  if (records) full_ = !Record(device, entry, launch);
  HADAL_CHECK_LE(std::ssize(entry.parts), parts);
  if (entry.parts.empty()) return launch(nullptr);
  for (size_t i = 0; i < entry.parts.size(); ++i) {
    device.Launch(*entry.parts[i].graph);
    if (i + 1 < entry.parts.size()) between(entry.parts[i].mark);
  }
}

bool GraphCache::Record(Device& device, Entry& entry, const LaunchAll& launch) {
  const int64_t free_bytes = device.FreeBytes();
  if (free_bytes < kKeepFreeBytes) return false;
  std::vector<Part> parts;
  bool made_all = true;
  const auto end = [&](int32_t mark) {
    absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device.EndCapture();
    made_all = made_all && graph.ok();
    if (made_all) parts.push_back({*std::move(graph), mark});
  };
  const Cut cut = [&](int32_t mark) {
    end(mark);
    device.BeginCapture();
  };
  device.BeginCapture();
  launch(&cut);
  end(0);
  if (!made_all) return false;
  entry.parts = std::move(parts);
  graphs_ += static_cast<int64_t>(entry.parts.size());
  bytes_ += std::max<int64_t>(free_bytes - device.FreeBytes(), 0);
  return true;
}

}  // namespace hadal
