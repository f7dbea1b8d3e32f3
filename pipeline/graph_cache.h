// What a device runs for a micro-batch, recorded and launched as one (a CUDA graph): a chunk of hundreds of sublayers is thousands of
// launches a micro-batch, and the host would take longer to make them than a GPU to run them.
//
// A graph serves a key: a phase of a chunk, a slot (its tensors' addresses are in the graph) and a shape of micro-batches. What else changes
// lies in the slot's block of the device's memory (batch_slots.h), which is filled before. Copies from and to the host stay outside.
// The first time of a key runs launch by launch, which also loads kernels and chooses the products' algorithms; the second is recorded
// and launched; later ones are launched. The same kernels with the same arguments in the same order: the same bits.
// At most `most` graphs are kept, and no more are made where the device has little memory left: what has none runs launch by launch.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/device/driver_memory.h"
#include "kernels/device_batch.h"
#include "runtime/device.h"

namespace hadal {

enum class GraphPhase : int32_t { kForward, kEvaluation, kBackward };

struct GraphKey {
  GraphPhase phase = GraphPhase::kForward;
  int32_t slot = 0;
  DeviceBatchShape shape;

  bool operator<(const GraphKey& other) const {
    return std::tie(phase, slot, shape) < std::tie(other.phase, other.slot, other.shape);
  }
};

class GraphCache {
 public:
  // What recording leaves free of the device's memory: modules that are loaded later have no other place.
  static constexpr int64_t kKeepFreeBytes = cuda::DriverMemory::kModuleBytes;

  explicit GraphCache(int64_t most, int64_t keep_free_bytes = kKeepFreeBytes)
      : most_(most), keep_free_bytes_(keep_free_bytes) {}

  using LaunchAll = std::function<void(bool recording)>;
  // Runs what `launch` launches, as a graph where there is one or it is time to record one.
  // REQUIRES: `launch` launches the same for the same key every time, and calls of the device nothing that a capture forbids.
  void Run(Device& device, const GraphKey& key, const LaunchAll& launch);

  int64_t graphs() const { return graphs_; }
  // What the device's free memory fell by as graphs were made.
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    bool seen = false;
    std::unique_ptr<DeviceGraph> graph;
  };
  bool Record(Device& device, Entry& entry, const LaunchAll& launch);

  int64_t most_, keep_free_bytes_;
  bool full_ = false;  // the device has no memory for more
  int64_t graphs_ = 0, bytes_ = 0;
  std::map<GraphKey, Entry> entries_;
};

// Graphs that a chunk keeps at most: for each slot and phase sixteen pairs of sizes (row_bucket.h).
constexpr int64_t MostGraphs(int64_t slots) { return slots * 3 * 16; }

}  // namespace hadal
