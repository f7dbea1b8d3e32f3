// What a device runs for a micro-batch, recorded and launched as one (a CUDA graph): a chunk of hundreds of sublayers
// is thousands of launches a micro-batch, and the host would take longer to make them than a GPU to run them.
//
// A graph serves a key: a phase of a chunk, a slot (its tensors' addresses are in the graph) and a shape of
// micro-batches. What else changes lies in the slot's block of the device's memory (batch_slots.h), which is filled
// before. Copies from and to the host stay outside. The first time of a key runs launch by launch, which also loads
// kernels and chooses the products' algorithms; the second is recorded and launched; later ones are launched. The same
// kernels with the same arguments in the same order: the same bits. A recording may be cut into several graphs, so that
// between two of them the caller can do what no graph may hold: with replicas, send the gradients that are complete.
// At most `most` graphs are kept, and no more are made where the device has little memory left: what has none runs
// launch by launch. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/device/driver_memory.h"
#include "kernels/device_batch.h"
#include "runtime/device.h"

namespace hadal {

enum class GraphPhase : int32_t { kForward, kEvaluation, kBackward, kLastBackward, kDecodeEncode, kDecodeStep };

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

  // Graphs that a recording is cut into at most: enough that little is left to send when the last has run, and few
  // enough launches.
  static constexpr int32_t kMostParts = 16;

  explicit GraphCache(int64_t most) : most_(most) {}

  // Of a recording: what has been launched since the last cut is a graph of its own, and `mark` what Run tells
  // `between` after it.
  using Cut = std::function<void(int32_t mark)>;
  using LaunchAll = std::function<void(const Cut* recording)>;  // null: it is not recorded
  // Runs what `launch` launches, as graphs where there are some or it is time to record them; `between` runs after each
  // of them but the last.
  // REQUIRES: `launch` launches and cuts the same for the same key every time, and calls of the device nothing that a
  // capture forbids; at most kMostParts − 1 cuts, and none but in kLastBackward.
  void Run(Device& device, const GraphKey& key, const LaunchAll& launch, const Cut& between = {});

  int64_t graphs() const { return graphs_; }
  // What the device's free memory fell by as graphs were made.
  int64_t bytes() const { return bytes_; }

 private:
  struct Part {
    std::unique_ptr<DeviceGraph> graph;
    int32_t mark = 0;  // of the cut after it
  };
  struct Entry {
    bool seen = false;
    std::vector<Part> parts;
  };
  bool Record(Device& device, Entry& entry, const LaunchAll& launch);

  int64_t most_;
  bool full_ = false;  // the device has no memory for more
  int64_t graphs_ = 0, bytes_ = 0;
  std::map<GraphKey, Entry> entries_;
};

// Graphs that a chunk keeps at most: for each slot and phase sixteen pairs of sizes (row_bucket.h), and with replicas
// as many for a step's last backward, which is always in the same slot.
constexpr int64_t MostGraphs(int64_t slots, int replicas) {
  return (slots * 3 + (replicas > 1 ? GraphCache::kMostParts : 0)) * 16;
}

}  // namespace hadal
