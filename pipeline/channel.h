// One direction of one border: ordered messages, each with all edges of one micro-batch, through a ring of k buffers.
//
// Sending copies the edges into a free buffer and posts; with k sends under way it waits for the oldest. Receiving
// posts into all free buffers beforehand, so that a rendezvous completes while the stage computes; an input stays in
// its buffer until the chunk has taken it. A message carries a header (step, micro-batch, rows), which the receiver
// compares with what it expects: a peer that runs another program is an error, not garbage.
// Buffers lie where the communicator moves memory. The host's: on a device an edge is copied out to be sent, and the
// chunk that takes it copies it in. The device's: nothing of it passes the host but the header, and the host waits for
// no kernel to send.
// Threads: one. Blocking: Send (full ring), Receive, Drain; every wait has the deadline given.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/border.h"
#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/packed_batch.h"
#include "runtime/trace.h"

namespace hadal {

// One view for each edge of a border.
using EdgeViews = absl::InlinedVector<ConstAnyMatrix, 2>;

// What both ends know.
struct ChannelSpec {
  int number = 0;    // tag
  int peer = 0;      // rank
  std::string name;  // "activations of chunk 0", for errors
  std::vector<Edge> edges;
  bool gradients = false;  // what it carries: the edges' gradients, or their values
  ActivationCapacity capacity;
  int64_t width = 0;       // d_model
  int buffers = 2;         // k
  bool on_device = false;  // buffers in the device's memory

  Storage StorageOf(const Edge& edge) const { return gradients ? edge.gradient : edge.values; }
  int64_t message_bytes() const;  // at full capacity, header included
};

class SendChannel {
 public:
  SendChannel(ChannelSpec spec, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);
  int buffers() const { return spec_.buffers; }  // transfers at once, at most

  // One matrix for each edge, where kernels of `stream` have left it.
  absl::Status Send(const Stream& stream, const PackedBatch& batch, int64_t step, std::span<const ConstAnyMatrix> edges,
                    absl::Duration timeout);
  // Waits until everything sent has been received.
  absl::Status Drain(absl::Duration timeout);

 private:
  absl::Status WaitOldest(absl::Duration timeout);

  ChannelSpec spec_;
  ArenaSlice slice_;
  ArenaSlice header_slice_;
  std::byte* buffers_ = nullptr;
  std::byte* headers_ = nullptr;  // [k] where buffers are the device's: from where headers are copied to them
  Communicator* communicator_ = nullptr;
  struct Outstanding {
    CommRequest request;
    int32_t micro_batch = 0;
  };
  std::deque<Outstanding> outstanding_;
  int64_t sent_ = 0;
};

class ReceiveChannel {
 public:
  ReceiveChannel(ChannelSpec spec, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);
  int buffers() const { return spec_.buffers; }  // transfers at once, at most

  // A program with `messages` receives on this channel starts: posts the first k.
  absl::Status Begin(int64_t messages);
  // For traces: looks whether the next message has come, and records when that was first seen. Errors: the
  // communicator's, which is closed then, so that they are not found again.
  absl::Status Poll(std::span<const PackedBatch> batches, TraceBuffer& trace);
  // Waits for the next message, which must be of `batch` and `step`.
  absl::Status Receive(const Stream& stream, const PackedBatch& batch, int64_t step, absl::Duration timeout);
  // The edges of the oldest received message that was not released yet.
  EdgeViews Front(const PackedBatch& batch) const;
  // The oldest message has been used: its buffer is posted again.
  absl::Status Release();

 private:
  absl::Status Post();

  ChannelSpec spec_;
  ArenaSlice slice_;
  std::byte* buffers_ = nullptr;
  Communicator* communicator_ = nullptr;
  std::deque<CommRequest> posted_;
  int64_t to_post_ = 0;  // receives of this program not posted yet
  int64_t posts_ = 0;    // buffers used so far, modulo k the next one
  int64_t released_ = 0;
  int64_t received_ = 0;                  // messages of this program
  std::optional<int64_t> arrived_bytes_;  // of the next message, where Poll has seen it come
};

}  // namespace hadal
