// ProgramClock measures the instructions of a rank's program (schedule.h), and lets the host run ahead of a device.
//
//   CPU     an instruction ends when its call returns
//   device  an instruction ends when all that it has enqueued is done. Mark enqueues a timed event behind it and
//           returns. The host continues, at most kMostAhead marks ahead of the device, and reads the times later
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

  // Must be called once, before all other methods. Makes the events. `device`: null for the CPU; it must outlive the
  // object. Errors: ResourceExhausted.
  absl::Status Prepare(Device* device);
  // Starts a program. Later calls add times to `times` and traced events to `trace`. `meanwhile`: see
  // DeviceQueues::AwaitOnHost. All three must outlive the program. Times and events are right only if the device is
  // idle at this call.
  void Begin(StageTimes& times, TraceBuffer& trace, const std::function<void()>& meanwhile);
  // Ends an instruction, which `event` describes in the trace, or, without `event`, a part of one that is timed in
  // parts. Adds the time since the previous mark to `part` of the StageTimes. Returns the mark's number, for Await.
  int64_t Mark(double StageTimes::*part, const std::optional<TraceEvent>& event = {});
  // Waits until the device has reached the mark, and reads its time.
  void Await(int64_t mark);
  void AwaitAll() { Await(last_); }
  // Reads the times of the marks that the device has reached; returns whether it has reached all. Does not wait.
  bool Poll();
  // The number of the latest mark whose time has been read. Marks are numbered over all programs; Begin makes one,
  // too.
  int64_t seen() const { return seen_; }

 private:
  struct Part {
    DeviceQueues::Event end = nullptr;
    double StageTimes::*part = nullptr;
    std::optional<TraceEvent> event;
  };
  Part& Of(int64_t mark) { return parts_[mark % parts_.size()]; }
  // Reads the device's time of mark seen_ + 1 and counts it.  REQUIRES: the device has reached the mark.
  void CountNext();
  // Adds `seconds`, the part's time, to times_ and its event to the trace.
  void Count(const Part& part, double seconds);

  Device* device_ = nullptr;
  StageTimes* times_ = nullptr;
  TraceBuffer* trace_ = nullptr;
  const std::function<void()>* meanwhile_ = nullptr;
  std::array<Part, kMostAhead + 1> parts_;
  int64_t last_ = 0, seen_ = 0;  // the latest mark, and the latest whose time has been read
  double seen_seconds_ = 0;      // MonotonicSeconds() when mark seen_ was reached
  double event_seconds_ = 0;     // when the next traced event begins
};

// Measures how long a thread was ready to run but had no core, because other processes or ranks used the cores.
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
