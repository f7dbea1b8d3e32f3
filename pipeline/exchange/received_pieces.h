// ReceivedPieces receives the other replicas' pieces of the buckets that this replica owns (replica_buckets.h),
// double-buffered.
//
// The pieces of owned bucket i, one from each other replica, are received into buffer i modulo kBuffers. The caller
// adds them and then frees the buffer by posting the next receives into it.
// Threads: one. Blocking: Wait. The caller provides the memory, bytes() of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"
#include "runtime/tensor.h"

namespace hadal {

class ReceivedPieces {
 public:
  static constexpr int kBuffers = 2;  // owned buckets received at once

  // `most_elements`: the most that a bucket has.
  ReceivedPieces(int replica, int replicas, int64_t most_elements)
      : replica_(replica), replicas_(replicas), most_elements_(most_elements) {}
  int64_t bytes() const { return kBuffers * others() * most_elements_ * int64_t{sizeof(float)}; }
  void Bind(float* buffers, Communicator& communicator);

  int64_t transfers() const { return kBuffers * others(); }  // posted at once
  // Posts the receives of owned bucket `position`, `elements` long, after the work in `queue`
  // (runtime/comm/communicator.h). REQUIRES: the pieces of bucket `position` − kBuffers have been added.
  absl::Status Post(size_t position, int64_t elements, DeviceQueues::Queue queue);
  // Whether all its pieces have arrived.  REQUIRES: posted.
  absl::StatusOr<bool> Test(size_t position);
  absl::Status Wait(size_t position, absl::Duration timeout);
  // The piece that `replica`, another one, sent of owned bucket `position`.
  Vector Piece(size_t position, int replica, int64_t elements) const;

 private:
  int64_t others() const { return replicas_ - 1; }
  // Index of the first receive of the buffer that owned bucket `position` uses.
  size_t First(size_t position) const { return position % kBuffers * others(); }

  int replica_, replicas_;
  int64_t most_elements_;
  Communicator* communicator_ = nullptr;
  float* buffers_ = nullptr;           // [kBuffers][R-1][most_elements]
  std::vector<CommRequest> receives_;  // [kBuffers][R-1]
};

}  // namespace hadal
