// Ends this process if the ranks do not find each other in time.
//
// MPI_Init and the first calls after it wait for every rank without a deadline, forever if a rank is stopped, hangs on
// a file server, or its host is gone. Nothing can be saved then, and MPI cannot name the missing ranks; so a process
// that waits too long prints a message and exits, and its launcher ends the job.
// Threads: watches on its own thread, which makes no MPI call. Limitation: no deadline if that cannot be created.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace hadal {

class StartDeadline {
 public:
  // Prints a message to stderr and exits with kExitHang if the object still exists after `patience`. `who`: this
  // process, for the message.
  StartDeadline(std::string who, absl::Duration patience);
  ~StartDeadline();
  StartDeadline(const StartDeadline&) = delete;
  StartDeadline& operator=(const StartDeadline&) = delete;

 private:
  void Watch();

  const std::string who_;
  const absl::Duration patience_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;  // last: it uses the other members
};

}  // namespace hadal
