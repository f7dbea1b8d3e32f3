// Short messages between a rank and one of its NCCL peers over `control`, a host communicator (MPI). With them,
// sender and receiver of a GPU transfer agree on its start (nccl_communicator.h).
//
//   offer      the sender has a message of this tag and length
//   grant      answer to an offer: the receiver has started its NCCL receive (or needs none: the message is empty)
//   refusal    the other answer to an offer: the message is longer than the receive's buffer
//   ready      NCCL may read and write this rank's buffers of its next exchange (nccl_exchanges.h); `bytes`: what it
//              sends to the peer
//   last       no message follows in this direction; the peer stops listening
// Messages arrive in the order sent.
// Threads: only the thread that makes the device's calls. Non-blocking. Errors: those of `control`.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"

namespace hadal {

struct NcclMessage {
  enum class Word : int32_t { kOffer, kGrant, kRefusal, kReady, kLast };
  Word word = Word::kOffer;  // which of the messages above
  int32_t tag = 0;
  int64_t transfer = 0;  // the offering rank's transfer id (nccl_transfers.h), also in the answer
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
  // Sends a message to the peer.
  absl::Status Say(const NcclMessage& message);
  // Returns the peer's next message, also its last one; nullopt if none has arrived.
  absl::StatusOr<std::optional<NcclMessage>> Next();
  // Frees the messages that the peer has received.
  absl::Status ForgetSent();
  // Whether ForgetSent has found every message received, and the peer has sent its last one (or Listen was not called).
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
