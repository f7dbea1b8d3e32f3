// ProgramClock measures the instructions of a rank's program (schedule.h), and lets the host run ahead of a device.
//
//   CPU     an instruction ends when its call returns
//   device  an instruction ends when all that it has enqueued is done. Mark enqueues a timed event behind it and
//           returns; the host continues, at most kMostAhead marks ahead of the device. It reads the events' times later
//
//   host    F0 │ F1 │ receive …                the gradient is there │ B0 │        Mark after each
//   device       F0       │       F1       │                         │    B0    │
//                                          └──────── receive ────────┘
// An instruction lasts from the end of the one before it, so the times of a program's instructions add up to the
// program's time. The time of a receive is the time in which the device has nothing to do before the message arrives: 0
// if the device is still busy then.
// Threads: one. Blocking: Await; Mark, if the host is kMostAhead marks ahead. Neither waits for another rank: kernels
// do not wait for transfers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "runtime/device.h"
#include "runtime/metrics_sink.h"
#include "runtime/trace.h"

namespace hadal {

class ProgramClock {
 public:
  static constexpr int64_t kMostAhead = 64;

  ProgramClock() = default;
  ~ProgramClock();
  ProgramClock(const ProgramClock&) = delete;
  ProgramClock& operator=(const ProgramClock&) = delete;

  // Must be called once, before all other methods. Makes events. `device`: null: the CPU. It must outlive the object.
  // Errors: ResourceExhausted.
  absl::Status Prepare(Device* device);
  // Starts a program. Times are added to `times`, traced events to `trace`. `meanwhile`: see DeviceQueues::AwaitOnHost.
  // All must outlive the program. The times and events are right only if the device is idle at this call.
  void Begin(StageTimes& times, TraceBuffer& trace, const std::function<void()>& meanwhile);
  // Ends an instruction, or, without `event`, the first part of an instruction that is timed in two parts. Adds the
  // time since the previous mark to `part` of the StageTimes. Returns the mark's number, for Await.
  int64_t Mark(double StageTimes::*part, const std::optional<TraceEvent>& event = {});
  // Waits until the device has reached the mark, and reads its time.
  void Await(int64_t mark);
  void AwaitAll() { Await(last_); }
  // Reads the times of the marks that the device has reached; returns whether it has reached all. Does not wait.
  bool Poll();
  // The number of marks whose time has been read, over all programs.
  int64_t seen() const { return seen_; }

 private:
  struct Part {
    DeviceQueues::Event end = nullptr;
    double StageTimes::*part = nullptr;
    std::optional<TraceEvent> event;
  };
  Part& Of(int64_t mark) { return parts_[mark % parts_.size()]; }
  // Takes the device's time of the next mark.  REQUIRES: it is reached.
  void CountNext();
  // `seconds`: of the part.
  void Count(const Part& part, double seconds);

  Device* device_ = nullptr;
  StageTimes* times_ = nullptr;
  TraceBuffer* trace_ = nullptr;
  const std::function<void()>* meanwhile_ = nullptr;
  std::array<Part, kMostAhead + 1> parts_;
  int64_t last_ = 0, seen_ = 0;  // the latest mark, and the latest whose time has been read
  double seen_seconds_ = 0;      // MonotonicSeconds() of that
  double event_seconds_ = 0;     // when the next traced event begins
};

// Measures how long a thread was ready to run without a core: other processes, or other ranks of the run, had them.
//
// Reads the kernel's counter of the thread (/proc/thread-self/schedstat, second number, ns); 0 if there is none.
// Thread safety: a clock measures the thread that constructed it; any thread may read it. Reading takes about a
// microsecond.
class RunQueueClock {
 public:
  RunQueueClock();  // measures the calling thread
  ~RunQueueClock();
  RunQueueClock(const RunQueueClock&) = delete;
  RunQueueClock& operator=(const RunQueueClock&) = delete;

  // Returns the seconds without a core since the thread began; never decreases.
  double Seconds() const;

 private:
  int file_;  // -1: the kernel has no counter
};

}  // namespace hadal
