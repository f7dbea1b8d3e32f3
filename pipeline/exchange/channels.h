// Channels owns the point-to-point channels of one rank: for each of its chunks, up to four channels that send and
// receive activations (forward) and their gradients (backward).
//
// Threads: one. Blocking: Drain. Errors: those of the Communicator.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/purpose.h"
#include "pipeline/exchange/channel.h"
#include "pipeline/layout/pipeline_layout.h"

namespace hadal {

class Channels {
 public:
  // Reserves the buffers of the forward channels and, for training, of the backward channels.
  Channels(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);

  // Maximum number of transfers in flight.
  int64_t transfers() const;

  // Posts the first receives of `program`.
  absl::Status Begin(const RankProgram& program);
  // For traces: records messages that arrived before their receive. `batches`: the program's.
  absl::Status Poll(std::span<const PackedBatch> batches, TraceBuffer& trace);
  // Waits until every message sent has been received.
  absl::Status Drain(absl::Duration timeout);
  // ReceiveChannel's, of all channels.
  absl::Status CheckHeaders();

  struct OfChunk {
    std::optional<ReceiveChannel> receive_forward, receive_backward;
    std::optional<SendChannel> send_forward, send_backward;
  };
  OfChunk& chunk(int index) { return chunks_[index]; }

 private:
  std::vector<OfChunk> chunks_;
};

}  // namespace hadal
