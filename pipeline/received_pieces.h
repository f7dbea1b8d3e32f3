// The other replicas' pieces of the buckets that this one owns (replica_buckets.h), as they come: a few buffers, used
// in turns.
//
// Owned bucket i's pieces lie in buffer i modulo kBuffers, one of each other replica. Who adds them says when a buffer
// is free again: by posting the next receives into it.
// Threads: one. Blocking: Wait. The memory is the caller's, of bytes().
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
  static constexpr int kBuffers = 2;  // owned buckets being received at once

  // `most_elements`: of a bucket.
  ReceivedPieces(int replica, int replicas, int64_t most_elements)
      : replica_(replica), replicas_(replicas), most_elements_(most_elements) {}
  int64_t bytes() const { return kBuffers * others() * most_elements_ * int64_t{sizeof(float)}; }
  void Bind(float* buffers, Communicator& communicator);

  int64_t transfers() const { return kBuffers * others(); }  // at once
  // Posts the receives of owned bucket `position`, of so many elements, behind `queue` (runtime/comm/communicator.h).
  // REQUIRES: bucket `position` − kBuffers is added.
  absl::Status Post(size_t position, int64_t elements, DeviceQueues::Queue queue);
  // Whether all its pieces have come.  REQUIRES: posted.
  absl::StatusOr<bool> Test(size_t position);
  absl::Status Wait(size_t position, absl::Duration timeout);
  // What `replica`, another one, sent of it.
  Vector Piece(size_t position, int replica, int64_t elements) const;

 private:
  int64_t others() const { return replicas_ - 1; }
  // Of the buffer that owned bucket `position` uses.
  size_t First(size_t position) const { return position % kBuffers * others(); }

  int replica_, replicas_;
  int64_t most_elements_;
  Communicator* communicator_ = nullptr;
  float* buffers_ = nullptr;           // [kBuffers][R-1][most_elements]
  std::vector<CommRequest> receives_;  // [kBuffers][R-1]
};

}  // namespace hadal
