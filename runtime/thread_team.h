// A team of threads that runs one body at a time: the calling thread and its workers.
//
// Replaces OpenMP's team. A region is one call of Run. A deep, narrow model has tens of thousands a second, each a few
// microseconds long. OpenMP's workers either spin for milliseconds between regions, so that other load on the host
// delays every region (steps measured three times slower), or they sleep at once, so that every region pays for a
// wake-up. Here both sides spin for kSpinSeconds and then sleep: as fast as spinning while regions follow each other,
// idle otherwise.
// On a busy host a worker may have no core when a region begins. The caller then runs the worker's part itself. If a
// worker loses its core within its part (the caller waits for kStallSeconds), the team runs all parts on the caller for
// a while: 10 ms, twice as long after each further stall, at most 1 s. So the number of threads follows the free cores;
// results do not change, because a part computes the same on any thread.
// Thread safety: a team may be used only by the thread that constructed it.
#pragma once

#include <exception>
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

  // The calling thread's own team; constructed on first use, destroyed with the thread.
  static ThreadTeam& OfThisThread();

  // Runs body(0) on the calling thread, and each of body(1) … body(threads − 1) on a worker or on the calling thread;
  // returns when all have ended and their writes are visible. Starts workers as needed; throws std::system_error if
  // that fails. Bodies must not wait for each other. If bodies throw, the exception of the lowest index is rethrown
  // after all have ended.
  // REQUIRES: threads ≥ 1; not called from inside a body.
  void Run(int threads, absl::FunctionRef<void(int)> body);

  // Total time in which the calling thread ran all parts alone because a worker had lost its core.
  double seconds_alone() const { return seconds_alone_; }

  static constexpr double kSpinSeconds = 50e-6;
  static constexpr double kStallSeconds = 500e-6;

 private:
  class Worker;

  std::exception_ptr RunWithWorkers(int threads, absl::FunctionRef<void(int)> body);

  std::vector<std::unique_ptr<Worker>> workers_;
  bool running_ = false;
  double alone_until_ = 0;        // in MonotonicSeconds
  double alone_for_seconds_ = 0;  // after the last stall
  double seconds_alone_ = 0;
};

}  // namespace hadal
