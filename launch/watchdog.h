// Prints a message when its rank has made no progress for half of pipeline.wait_timeout_seconds: what the rank waits
// for, from which rank, since when, and its place in the schedule.
//
//   watchdog [rank 1]: waiting for 5m0s: rank 1, receive from rank 0, tag 0, for activations of chunk 0, micro-batch 3;
//   at step 12, instruction 17 of 40: receive_forward(chunk 0, micro-batch 3)
//
// It does not wait for the whole timeout, because the first rank whose wait lasts that long ends the job (exit code 5).
// By then every waiting rank has printed, so the log shows which rank waits for which; the cause is a rank that has not
// printed: it does not wait, or it has ended. If the watchdog cannot make its message (no memory), it prints that to
// stderr and the run continues. The watchdog never ends a run: the waits do, and DeviceWatch
// (runtime/device_watch.h).
// Threads: watches on a thread of its own, which only reads. Blocking: the destructor joins that thread at once.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "pipeline/engine/current_instruction.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class Watchdog {
 public:
  // Receives one line, on the watchdog's thread. May throw.
  using Say = std::function<void(const std::string& line)>;
  // Watches until destroyed. `timeout`: pipeline.wait_timeout_seconds. All arguments must outlive it.
  Watchdog(const Communicator& communicator, const CurrentInstruction& current, absl::Duration timeout, Say say);

 private:
  void Watch(const std::stop_token& ending);
  void LookAndSay();
  // Returns a message about this rank that has not been printed yet, or "".
  std::string Look();

  const Communicator& communicator_;
  const CurrentInstruction& current_;
  const absl::Duration patience_;
  const Say say_;
  std::optional<double> reported_;  // start of the wait last reported, in MonotonicSeconds()
  double waited_until_ = 0;         // when a wait was last seen, in MonotonicSeconds()

  std::jthread thread_;  // last: it uses the others
};

}  // namespace hadal
