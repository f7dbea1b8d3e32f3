// A team of threads that runs one body at a time: the calling thread, and workers that wait for it.
//
// Why not OpenMP's team: a deep, narrow model runs tens of thousands of regions a second, each a few microseconds of
// work. OpenMP's workers either spin for milliseconds between regions, so that one busy neighbour on the host makes
// every region wait for the scheduler (measured with a foreign load: steps three times slower), or they sleep at once,
// and every region pays for a wake-up. Here both sides spin for kSpinSeconds and then sleep: as fast as spinning where
// regions follow each other, idle where they do not. Sanitizers understand it, too.
// Thread safety: a team belongs to the thread that made it.
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

  // The calling thread's own team, made on first use, ended with the thread.
  static ThreadTeam& OfThisThread();

  // Runs body(0) here and body(1) … body(threads − 1) on workers, and returns when all have ended; what they wrote is
  // then visible here. Starts missing workers. Libraries with OpenMP threads of their own run serially on workers. If
  // bodies throw (std::bad_alloc), the exception of the lowest index is thrown here once all have ended;
  // std::system_error where no thread can be started. REQUIRES: threads ≥ 1; not called from inside a body.
  void Run(int threads, absl::FunctionRef<void(int)> body);

  static constexpr double kSpinSeconds = 50e-6;

 private:
  class Worker;

  std::vector<std::unique_ptr<Worker>> workers_;
  bool running_ = false;
};

}  // namespace hadal
