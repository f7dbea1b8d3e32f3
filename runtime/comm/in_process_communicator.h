// The Communicator of ranks that are threads of one process: for tests and for runs on one machine without MPI.
//
// A send of any size completes only when its receive has been posted and the bytes are copied. So a deadlock that MPI
// hides by buffering small messages shows here as DeadlineExceeded.
//
// Every rank has a mailbox with the unmatched sends to it and its own unmatched receives, in the order they were
// posted. Send and Receive search it for a match under the mailbox's lock. The rank that posts second copies the bytes
// and wakes the other one. A waiting rank sleeps until it is woken, so hundreds of ranks fit on one core.
// Limits: memory O(size + posted transfers). Matching takes time linear in the unmatched transfers of one mailbox.
// Threads: one thread per communicator; the InProcessWorld is used by the thread that constructed it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class InProcessCommunicator;

// Owns the communicators of all ranks.
class InProcessWorld {
 public:
  // REQUIRES: size ≥ 1.
  explicit InProcessWorld(int size);
  // REQUIRES: no thread uses the communicators.
  ~InProcessWorld();
  InProcessWorld(const InProcessWorld&) = delete;
  InProcessWorld& operator=(const InProcessWorld&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  // Owned by the world. REQUIRES: 0 ≤ rank < size().
  Communicator& communicator(int rank);

  // Runs `body` once per rank, each in its own thread, and returns when all have returned. The first error aborts the
  // world, so that the other ranks fail soon; Run returns that error. A body that fails while its transfers are in
  // progress must call Abort before it frees their buffers. Blocking.
  absl::Status Run(const std::function<absl::Status(Communicator&)>& body);

 private:
  friend class InProcessCommunicator;
  struct Shared;

  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<InProcessCommunicator>> ranks_;
};

}  // namespace hadal
