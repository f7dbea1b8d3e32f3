// Short messages between a rank and one of its NCCL peers over `control`, a host communicator (MPI). With them,
// sender and receiver of a GPU transfer agree on its start (nccl_communicator.h).
//
//   offer      the sender has a message of that tag and length
//   grant      the receiver's answer: it has started its NCCL receive (or needs none, if the message is empty)
//   refusal    the receiver's answer instead: the message is longer than the receive's buffer
//   ready      the sender may exchange: its next exchange (nccl_exchanges.h), in which it sends the peer so many bytes
//   last       the last message in each direction: the peer stops listening
// Messages arrive in the order sent.
// Threads: one, the device's. Non-blocking: Next returns nothing if no message has arrived. Errors: those of `control`.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"

namespace hadal {

struct NcclMessage {
  enum class Word : int32_t { kOffer, kGrant, kRefusal, kReady, kLast };
  Word word = Word::kOffer;
  int32_t tag = 0;
  int64_t transfer = 0;  // the sender's transfer id
  int64_t bytes = 0;
};

class NcclControlChannel {
 public:
  // `control` must outlive the channel. The channel must not move in memory.
  NcclControlChannel(Communicator& control, int peer) : control_(control), peer_(peer) {}
  NcclControlChannel(const NcclControlChannel&) = delete;
  NcclControlChannel& operator=(const NcclControlChannel&) = delete;

  // Starts receiving the peer's messages, until its last one. REQUIRES: the peer is another rank.
  absl::Status Listen();
  absl::Status Say(const NcclMessage& message);
  // Returns the peer's next message, if one has arrived.
  absl::StatusOr<std::optional<NcclMessage>> Next();
  // Frees the messages that the peer has received.
  absl::Status ForgetSent();
  // Whether the peer has received every message, and has sent its last one (or Listen was not called).
  bool is_over() const { return !arrival_.active() && outbox_.empty(); }

 private:
  struct Outgoing {
    NcclMessage message;
    CommRequest request;
  };

  Communicator& control_;
  const int peer_;
  NcclMessage inbox_;
  CommRequest arrival_;
  std::deque<Outgoing> outbox_;  // its elements must not move
};

}  // namespace hadal
