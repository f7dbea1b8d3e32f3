#include "pipeline/exchange/received_pieces.h"

#include "absl/time/clock.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {

void ReceivedPieces::Bind(float* buffers, Communicator& communicator) {
  buffers_ = buffers;
  communicator_ = &communicator;
  receives_.resize(transfers());
}

absl::Status ReceivedPieces::Post(size_t position, int64_t elements, DeviceQueues::Queue queue) {
  size_t request = First(position);
  for (int r = 0; r < replicas_; ++r) {
    if (r == replica_) continue;
    const Vector piece = Piece(position, r, elements);
    HADAL_ASSIGN_OR_RETURN(receives_[request++], communicator_->ReceiveBehind(
                                                     queue, piece.data, elements * sizeof(float), r, kReplicaPieceTag));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReceivedPieces::Test(size_t position) {
  for (size_t i = First(position); i < First(position) + others(); ++i) {
    if (!receives_[i].active()) continue;
    HADAL_ASSIGN_OR_RETURN(const bool done, communicator_->Test(receives_[i]));
    if (!done) return false;
  }
  return true;
}

absl::Status ReceivedPieces::Wait(size_t position, absl::Duration timeout) {
  for (size_t i = First(position); i < First(position) + others(); ++i) {
    if (!receives_[i].active()) continue;
    HADAL_RETURN_IF_ERROR(communicator_->Wait(receives_[i], absl::Now() + timeout, "another replica's gradients"));
  }
  return absl::OkStatus();
}

Vector ReceivedPieces::Piece(size_t position, int replica, int64_t elements) const {
  const int64_t place = replica < replica_ ? replica : replica - 1;
  return {buffers_ + (static_cast<int64_t>(First(position)) + place) * most_elements_, elements};
}

}  // namespace hadal
