// What a rank and one of its NCCL peers tell each other, both ways, through `control`, a communicator of the host: the
// offers and grants of nccl_communicator.h, in order, and at the end a farewell.
//
// Threads: one, the device's. Not blocking. Errors: those of `control`.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"

namespace hadal {

struct NcclMessage {
  enum class Word : int32_t { kOffer, kGrant, kRefusal, kFarewell };
  Word word = Word::kOffer;
  int32_t tag = 0;
  int64_t transfer = 0;  // the sender's number
  int64_t bytes = 0;
};

class NcclControlChannel {
 public:
  // `control` must outlive the channel, which stays where it is.
  NcclControlChannel(Communicator& control, int peer) : control_(control), peer_(peer) {}
  NcclControlChannel(const NcclControlChannel&) = delete;
  NcclControlChannel& operator=(const NcclControlChannel&) = delete;

  // From now on messages of the peer may come, until its farewell.  REQUIRES: the peer is another rank.
  absl::Status Listen();
  absl::Status Say(const NcclMessage& message);
  // The peer's next message, if one has come.
  absl::StatusOr<std::optional<NcclMessage>> Next();
  // Forgets what the peer has received.
  absl::Status ForgetSent();
  // All is received that was said, and the peer has said its farewell, or was never listened to.
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
  std::deque<Outgoing> outbox_;  // whose elements stay where they are
};

}  // namespace hadal
