// Records what a device runs for a micro-batch and launches it as one CUDA graph.
//
// Why: a chunk of hundreds of sublayers needs thousands of launches per micro-batch; the host would take longer to
// launch them than a GPU to run them.
// A graph belongs to a key: a chunk's phase, a slot (the graph holds its tensors' addresses) and a shape of
// micro-batch. Everything else that changes is in the slot's block of device memory (batch_slots.h), filled before the
// launch. Copies from and to the host stay outside. The first run of a key launches kernel by kernel, which also loads
// kernels and chooses the products' algorithms; the second is recorded and launched; later runs launch the graph. A
// graph runs the same kernels with the same arguments in the same order, hence the same bits. A recording may be cut
// into several graphs, so that between two of them the caller can do what a graph cannot contain: with replicas, send
// the gradients that are complete.
// Limits: at most `most` graphs, and no more once the device is short of memory. A key without a graph runs kernel by
// kernel. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/cuda_host/driver_memory.h"
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
  // Device memory that recording leaves free, because modules loaded later need it.
  static constexpr int64_t kKeepFreeBytes = cuda::DriverMemory::kModuleBytes;

  // The most graphs of one recording: enough that little is left to send after the last has run, and few enough
  // launches.
  static constexpr int32_t kMostParts = 16;

  explicit GraphCache(int64_t most) : most_(most) {}

  // During a recording: ends one graph and begins the next. Run passes `mark` to `between` after the graph that ended.
  using Cut = std::function<void(int32_t mark)>;
  using LaunchAll = std::function<void(const Cut* recording)>;  // null: not recording
  // Runs what `launch` launches: as graphs if there are any or if this is the run to record, else kernel by kernel.
  // `between` runs after each graph except the last.
  // REQUIRES: for the same key `launch` always launches and cuts the same, and makes no device call that a capture
  // forbids; at most kMostParts − 1 cuts, and only in kLastBackward.
  void Run(Device& device, const GraphKey& key, const LaunchAll& launch, const Cut& between = {});

  int64_t graphs() const { return graphs_; }
  // Device memory that the graphs took, measured as the fall in free memory.
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
  bool full_ = false;  // no device memory for more graphs
  int64_t graphs_ = 0, bytes_ = 0;
  std::map<GraphKey, Entry> entries_;
};

// The most graphs a chunk keeps: for each slot and phase sixteen pairs of sizes (row_bucket.h); with replicas, as many
// for a step's last backward, which always uses the same slot.
constexpr int64_t MostGraphs(int64_t slots, int replicas) {
  return (slots * 3 + (replicas > 1 ? GraphCache::kMostParts : 0)) * 16;
}

}  // namespace hadal
