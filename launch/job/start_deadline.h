// StartDeadline ends this process where the ranks do not find each other in time.
//
// MPI_Init and the first calls behind it wait for every rank, without a deadline: where one is stopped, hangs on a file
// server, or its host is gone, the others would wait for ever. Nothing can be saved by then, and MPI cannot be asked
// who is missing; so a process that waits too long says so and exits, and its launcher ends the job.
// Threads: one of its own, which makes no MPI call. Limitation: where no thread can be had, there is no deadline.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace hadal {

class StartDeadline {
 public:
  // Unless the object is gone after `patience`, prints a message to stderr and exits with kExitHang. `who`: this
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
  std::thread thread_;  // last: it uses the others
};

}  // namespace hadal
