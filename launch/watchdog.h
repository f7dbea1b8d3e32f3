// The watchdog: when a rank has not got on for half of pipeline.wait_timeout_seconds, it says what the rank waits for,
// from whom, since when, and where in the schedule it is.
//
//   watchdog [rank 1]: waiting for 5m0s: rank 1, receive from rank 0, tag 0, for activations of chunk 0, micro-batch 3;
//   at step 12, instruction 17 of 40: receive_forward(chunk 0, micro-batch 3)
//
// Why at half: the first rank whose wait reaches the whole timeout ends the job (exit code 5), and by then all ranks
// that wait have spoken, so that the log tells who waits for whom; a rank that is missing from it, or busy, is the one
// to look at. Where it cannot say so (no memory), it says that to standard error, and the run goes on: whether it ends
// is for its waits to decide.
// Threads: one of its own, which only reads. Blocking: the destructor waits for that thread, at most a moment.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "pipeline/program_place.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class Watchdog {
 public:
  // Gets a line, from the watchdog's thread. May throw.
  using Say = std::function<void(const std::string& line)>;
  // Watches until destroyed. All arguments must outlive it.
  Watchdog(const Communicator& communicator, const ProgramPlace& place, absl::Duration timeout, Say say);
  ~Watchdog();

 private:
  void Watch();
  void LookAndSay();
  // Something to say about this rank that has not been said yet, or "".
  std::string Look();

  const Communicator& communicator_;
  const ProgramPlace& place_;
  const absl::Duration patience_;
  const Say say_;
  std::optional<double> reported_;  // beginning of what was last reported, in MonotonicSeconds()

  std::mutex mutex_;
  std::condition_variable end_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hadal
