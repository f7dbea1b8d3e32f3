// A team of threads that runs one body at a time: the calling thread and its workers.
//
// Replaces OpenMP's team. A deep, narrow model runs tens of thousands of regions a second, each a few microseconds
// long. OpenMP's workers either spin for milliseconds between regions, so that other load on the host delays every
// region (steps measured three times slower), or they sleep at once, so that every region pays for a wake-up. Here both
// sides spin for kSpinSeconds and then sleep: as fast as spinning while regions follow each other, idle otherwise.
// Sanitizers understand it, too.
// Thread safety: a team may be used only by the thread that constructed it.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"

namespace hadal {

class ThreadTeam {
 public:
  ThreadTeam();
  ~ThreadTeam();  // ends the workers
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // The calling thread's own team, constructed on first use, destroyed with the thread.
  static ThreadTeam& OfThisThread();

  // Runs body(0) on the calling thread and body(1) … body(threads − 1) on workers, which it starts as needed; returns
  // when all have ended and their writes are visible. Libraries run with one OpenMP thread on workers. If bodies throw
  // (std::bad_alloc), rethrows the exception of the lowest index after all have ended; throws std::system_error if a
  // thread cannot be started. REQUIRES: threads ≥ 1; not called from inside a body.
  void Run(int threads, absl::FunctionRef<void(int)> body);

  static constexpr double kSpinSeconds = 50e-6;

 private:
  class Worker;

  std::vector<std::unique_ptr<Worker>> workers_;
  bool running_ = false;
};

}  // namespace hadal
