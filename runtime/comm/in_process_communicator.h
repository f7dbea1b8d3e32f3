// Ranks as threads of one process: the transport of tests and of runs on one machine without MPI.
//
// True rendezvous: a send completes when its receive has been posted and the bytes are copied, whatever the size. A
// deadlock that MPI hides by buffering small messages shows here, as DeadlineExceeded.
//
// How it works: every rank has a mailbox with the unmatched sends to it and its own unmatched receives, in the order
// they were posted. Send and Receive look for their partner there, under the mailbox's lock. Whichever is posted second
// copies the bytes and wakes the other rank. A waiting rank sleeps until it is woken, so it costs nothing, and hundreds
// of ranks fit on one core.
// Limits: memory O(size + outstanding transfers). Finding a partner takes time linear in what is unmatched in one
// mailbox.
// Threads: each rank's communicator by one thread; the world by the thread that made it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class InProcessCommunicator;

class InProcessWorld {
 public:
  // REQUIRES: size ≥ 1.
  explicit InProcessWorld(int size);
  // REQUIRES: no thread uses the communicators any more.
  ~InProcessWorld();
  InProcessWorld(const InProcessWorld&) = delete;
  InProcessWorld& operator=(const InProcessWorld&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  // Owned by the world. REQUIRES: 0 ≤ rank < size().
  Communicator& communicator(int rank);

  // Runs `body` once a rank, each in its own thread, and returns when all have returned. The first error aborts the
  // world, so that the other ranks fail soon too; Run returns that error. A body that fails while transfers are
  // outstanding must call Abort before it frees their buffers. Blocking.
  absl::Status Run(const std::function<absl::Status(Communicator&)>& body);

 private:
  friend class InProcessCommunicator;
  struct Shared;

  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<InProcessCommunicator>> ranks_;
};

}  // namespace hadal
