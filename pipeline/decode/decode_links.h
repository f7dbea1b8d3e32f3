// What ranks say to each other while decoding: commands from the searching rank to all others, and the stream of a step
// or of an encoding over each border, in the order of the commands.
//
// Every rank executes commands in the same order and each in ascending order of its chunks, and a message goes from a
// chunk to the next one; so whoever waits, waits for something that comes earlier in that order: no cycle, whatever the
// buffering. Sends copy into a ring and return; a full ring waits for its oldest.
// Threads: one. Blocking: as stated; every wait has the deadline given.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "pipeline/decode/decode_capacity.h"
#include "pipeline/decode/decode_command.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class DecodeLinks {
 public:
  // `stream`: where the decoder's streams lie; on a device they cross through the host.
  DecodeLinks(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const DecodeCapacity& capacity,
              const Stream& stream, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout);

  // The rank that searches: the output head's.
  int searcher() const { return searcher_; }

  // On the searching rank: to all others.
  absl::Status SendCommand(const DecodeCommand& command);
  // On the others.
  absl::Status ReceiveCommand(DecodeCommand& command);

  // The stream that chunk `chunk` of this rank leaves, to the next chunk's rank; the stream that it reads. Of a
  // combining stack it is all its entries so far (layers/border.h).
  absl::Status SendStream(int chunk, ConstAnyMatrix stream);
  absl::Status ReceiveStream(int chunk, AnyMatrix stream);

  // Waits until everything sent has been received.
  absl::Status Drain();

 private:
  static constexpr int kBuffers = 2;  // of a border

  // Sends to one peer, oldest first.
  struct Ring {
    std::deque<CommRequest> outstanding;
    int64_t sent = 0;
  };
  absl::Status Post(Ring& ring, int buffers, const void* data, int64_t bytes, int peer, int tag, std::string_view what);
  // Makes room for one more send.
  absl::Status WaitForRoom(Ring& ring, int buffers, std::string_view what);

  const Stream stream_;
  ScheduleShape shape_;
  int rank_, searcher_;
  int command_buffers_;
  int64_t command_bytes_, stream_bytes_, received_bytes_ = 0;
  ArenaSlice command_slice_, stream_slice_, received_slice_;
  std::byte *commands_ = nullptr, *streams_ = nullptr, *received_ = nullptr;
  std::vector<Ring> command_rings_;  // [ranks]
  std::vector<Ring> stream_rings_;   // [chunks]
  Communicator* communicator_ = nullptr;
  absl::Duration timeout_;
};

}  // namespace hadal
