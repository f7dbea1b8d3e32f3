// GraphCache records the launches of a chunk's phase (GraphPhase) for a micro-batch and replays them as a CUDA graph.
//
// Purpose: a chunk of hundreds of sublayers needs thousands of launches per micro-batch, which take the host longer
// than the kernels take the GPU.
// The key of a graph is the chunk's phase, the slots (the graph contains its tensors' addresses) and the shape of the
// micro-batch. Values that vary otherwise are in the slot's block of device memory (batch_slots.h), which is filled
// before the launch. Copies between host and device are not recorded. The first run of a key launches its kernels
// directly, which also loads them and selects the products' algorithms; the second run is recorded and launched; later
// runs launch the graph. A graph runs the same kernels with the same arguments in the same order, so the bits are
// equal. A recording may be cut into several graphs, so that the caller can act between them: with replicas, send the
// gradients that are complete.
// Limits: at most `most` graphs, and no further ones when device memory is short. A key without a graph launches its
// kernels directly. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "kernels/cuda_host/driver_memory.h"
#include "kernels/device_batch.h"
#include "runtime/device.h"

namespace hadal {

enum class GraphPhase : int32_t {
  kForward,
  kEvaluation,  // forward without dropout
  kBackward,
  kLastBackward,  // of a step's last micro-batch, with replicas
  kBackwardInput,
  kBackwardWeight,
  kLastBackwardWeight,  // as kLastBackward
  kDecodeEncode,        // DecoderChunk::Encode
  kDecodeStep           // DecoderChunk::Step
};
// Whether a recording may be cut.
constexpr bool HasParts(GraphPhase phase) {
  return phase == GraphPhase::kLastBackward || phase == GraphPhase::kLastBackwardWeight;
}

struct GraphKey {
  GraphPhase phase = GraphPhase::kForward;
  int32_t slot = 0;
  int32_t pending_slot = 0;  // of a half of a backward
  DeviceBatchShape shape;

  bool operator<(const GraphKey& other) const {
    return std::tie(phase, slot, pending_slot, shape) <
           std::tie(other.phase, other.slot, other.pending_slot, other.shape);
  }
};

class GraphCache {
 public:
  // Device memory that recording must leave free, for modules that are loaded later.
  static constexpr int64_t kKeepFreeBytes = cuda::DriverMemory::kModuleBytes;

  // Maximum number of graphs in one recording: a compromise between the gradients left to send after the last graph,
  // and the number of launches.
  static constexpr int32_t kMostParts = 16;

  explicit GraphCache(int64_t most) : most_(most) {}

  // A function that LaunchAll calls during a recording: ends a graph and begins the next. When Run later launches the
  // graphs, it calls `between` with `mark` after the graph that was ended.
  using Cut = std::function<void(int32_t mark)>;
  using LaunchAll = std::function<void(const Cut* recording)>;  // null: this run is not recorded
  // Executes the launches of `launch`: by its graphs if they exist or if this run records them, else directly.
  // `between` runs after each graph except the last.
  // REQUIRES: for the same key, `launch` always makes the same launches and cuts, and no device call that a capture
  // forbids; at most kMostParts − 1 cuts, and only in a phase with parts.
  void Run(Device& device, const GraphKey& key, const LaunchAll& launch, const Cut& between = {});

  int64_t graphs() const { return graphs_; }
  // Returns the device memory that the graphs use, measured as the decrease of free memory.
  int64_t bytes() const { return bytes_; }

 private:
  struct Part {
    std::unique_ptr<DeviceGraph> graph;
    int32_t mark = 0;  // of the cut that ends the graph
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

// Returns the maximum number of graphs of a chunk: 16 shapes (row_bucket.h) for each slot and phase; with replicas,
// also 16 shapes for each of the kMostParts parts of a step's last backward, which always uses the same slot.
// `pending_slots`: ChunkSpec's; a half of a backward has a graph for each pair of slots.
constexpr int64_t MostGraphs(int64_t slots, int64_t pending_slots, int replicas) {
  const int64_t of_phases = pending_slots > 0 ? 2 * slots + 2 * std::lcm(slots, pending_slots) : 3 * slots;
  return (of_phases + (replicas > 1 ? GraphCache::kMostParts : 0)) * 16;
}

}  // namespace hadal
