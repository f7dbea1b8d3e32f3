// A channel sends tensors in one direction between two neighbouring parts of the pipeline, as ordered messages through
// a ring of k buffers.
//
// Message: the tensors of one micro-batch that pass a cut of the model ("edges" of a "border", layers/border.h: the
// residual stream and, in the decoder, the encoder's output), or in the backward direction their gradients. The
// receiver computes a message's size from the step's micro-batches, which are the same on all ranks. A header (step,
// micro-batch, rows) comes first; the receiver compares it with what it expects, so a peer that executes other
// instructions causes an error instead of wrong numbers.
// Sender: Send copies the tensors into a free buffer and posts it; if k sends are outstanding, it awaits the oldest.
// Receiver: posts a receive into every free buffer in advance, so that a rendezvous completes while the stage computes;
// an input stays in its buffer until the chunk has used it (Release).
// The buffers are in the memory that the communicator transfers. If that is host memory and kernels run on a device,
// Send copies the tensors to the host and the receiving chunk copies them to its device. If it is device memory, only
// the header passes through the host, and neither Send nor Receive waits for a kernel: the header is copied to the host
// behind the kernels and compared later, at the latest by CheckHeaders; the size of a message, which the transport
// reports, is compared at once. In device memory, messages of a rank to itself have no header.
// Threads: one. Blocking: Send (when the ring is full), Receive and Drain; each waits at most the given timeout.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/border.h"
#include "layers/chunk_part.h"
#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/packed_batch.h"
#include "runtime/trace.h"

namespace hadal {

// One view for each edge of a border.
using EdgeViews = absl::InlinedVector<ConstAnyMatrix, 2>;

// What sender and receiver must agree on.
struct ChannelSpec {
  int number = 0;    // the tag of its messages
  int peer = 0;      // rank at the other end
  std::string name;  // "activations of chunk 0", for errors
  std::vector<Edge> edges;
  bool gradients = false;  // whether messages carry the edges' gradients or their values
  ActivationCapacity capacity;
  int64_t width = 0;       // d_model
  int buffers = 2;         // k
  bool on_device = false;  // whether the buffers are in device memory
  bool to_self = false;    // whether `peer` is this rank

  int64_t message_bytes() const;  // at full capacity, header included
  bool has_header() const { return !(on_device && to_self); }
};

// Identifies the contents of a message.
struct MessageHeader {
  int64_t step = 0;
  int64_t micro_batch = 0;
  int64_t source_rows = 0;
  int64_t target_rows = 0;
  bool operator==(const MessageHeader&) const = default;
};

class SendChannel {
 public:
  SendChannel(ChannelSpec spec, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);
  int buffers() const { return spec_.buffers; }  // most transfers posted at once

  // Sends `edges`, one matrix for each edge, which work enqueued on `stream` writes. `meanwhile`: see
  // Communicator::Wait. Errors: those of Communicator::Wait.
  absl::Status Send(const Stream& stream, const PackedBatch& batch, int64_t step, std::span<const ConstAnyMatrix> edges,
                    absl::Duration timeout, const std::function<absl::Status()>* meanwhile = nullptr);
  // Whether Send would post its message at once.
  absl::StatusOr<bool> HasRoom();
  // Waits until all messages sent have been received.
  absl::Status Drain(absl::Duration timeout);

 private:
  absl::Status WaitOldest(absl::Duration timeout, const std::function<absl::Status()>* meanwhile);

  ChannelSpec spec_;
  ArenaSlice slice_;
  ArenaSlice header_slice_;
  std::byte* buffers_ = nullptr;
  std::byte* headers_ = nullptr;  // [k] with buffers on the device: host memory from which headers are copied
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
  int buffers() const { return spec_.buffers; }  // most transfers posted at once

  // Starts a step or evaluation with `messages` receives on this channel: posts the first k.
  absl::Status Begin(int64_t messages);
  // Tests whether the next message has arrived, and records in a trace when that was first seen. Errors: the
  // communicator's, which is closed after one, so that later calls fail too.
  absl::StatusOr<bool> Poll(std::span<const PackedBatch> batches, TraceBuffer& trace);
  // Waits for the next message. `meanwhile`: see Communicator::Wait.  Errors: those of Communicator::Wait; Internal if
  // this message, or an earlier one whose header has arrived since, is not that of its `batch` and `step`.
  absl::Status Receive(const Stream& stream, const PackedBatch& batch, int64_t step, absl::Duration timeout,
                       const std::function<absl::Status()>* meanwhile = nullptr);
  // The edges of the oldest message that was received and not released yet.
  EdgeViews Front(const PackedBatch& batch) const;
  // Frees the buffer of the oldest message and posts the next receive into it.
  absl::Status Release();
  // Compares the headers of all messages received.  REQUIRES: the device has done all that is enqueued. Errors:
  // Internal, as those of Receive.
  absl::Status CheckHeaders();

 private:
  absl::Status Post();
  // Compares the header in buffer `place` of the ring, if it has not been compared.
  absl::Status CheckHeader(size_t place);

  ChannelSpec spec_;
  ArenaSlice slice_;
  ArenaSlice header_slice_;
  std::byte* buffers_ = nullptr;
  std::byte* headers_ = nullptr;  // [k] with buffers on the device: host memory to which headers are copied
  std::vector<std::optional<MessageHeader>> unchecked_;  // [k] the headers that are expected there
  Communicator* communicator_ = nullptr;
  std::deque<CommRequest> posted_;
  int64_t to_post_ = 0;  // receives since Begin that are not posted yet
  int64_t posts_ = 0;    // receives posted so far; modulo k: the next buffer
  int64_t released_ = 0;
  int64_t received_ = 0;                  // messages since Begin
  std::optional<int64_t> arrived_bytes_;  // of the next message, if Poll has seen it arrive
};

// Channels owns the point-to-point channels of one rank: for each of its chunks, up to four channels: send and receive,
// of activations (forward) and of their gradients (backward).
// Threads: one. Blocking: Drain. Errors: those of the Communicator.
class Channels {
 public:
  // Reserves the buffers of the forward channels and, for training, of the backward channels.
  Channels(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);

  // Maximum number of transfers in flight.
  int64_t transfers() const;

  // Posts the first receives of `program`, this rank's list of instructions (schedule.h).
  absl::Status Begin(const RankProgram& program);
  // For traces: records messages that arrived before their receive instruction. `batches`: the program's micro-batches.
  absl::Status Poll(std::span<const PackedBatch> batches, TraceBuffer& trace);
  // Waits until every message sent has been received.
  absl::Status Drain(absl::Duration timeout);
  // ReceiveChannel::CheckHeaders, for all channels.
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
