// Shows how far a command is while it works for more than a second, in one line that a thread of its own redraws.
//
//   encoding train  41%  12.3M/30.1M bytes  ETA 8s
//   training the vocabulary  12s                                   (total unknown)
// On a terminal the line updates itself and disappears at the end. Elsewhere a line is written once a minute.
// While it lives, nothing else may write to the terminal.
// Thread safety: Advance may be called by any thread. Non-blocking, except that the destructor waits for the thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/clock.h"
#include "tools/output/terminal.h"

namespace hadal {

class WorkProgress {
 public:
  struct Output {
    std::ostream& out;
    TerminalStyle style;
    double first_seconds = 1;   // until the first line on a terminal
    double live_seconds = 0.2;  // between two lines on a terminal
    double plain_seconds = 60;  // elsewhere
  };

  // `what` is done in `total` units ("bytes", "lines"). `total` 0: unknown. Writes to standard error.
  WorkProgress(std::string what, std::string unit, int64_t total);
  WorkProgress(Output output, std::string what, std::string unit, int64_t total);
  ~WorkProgress();
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // `units` more are done.
  void Advance(int64_t units) { done_.fetch_add(units, std::memory_order_relaxed); }

 private:
  void Tick();

  const Output output_;
  const std::string what_, unit_;
  const int64_t total_;
  const Stopwatch watch_;
  std::atomic<int64_t> done_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;  // last member: starts when all others are constructed
};

// The line, without colours. `total` 0: unknown.
std::string WorkProgressLine(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                             double seconds);

}  // namespace hadal
