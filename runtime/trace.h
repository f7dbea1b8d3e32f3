// A rank's timed events in a bounded buffer, filled only while recording.
//
// Reserve() allocates all memory, so that tracing allocates nothing inside a step. When the buffer is full, further
// events are dropped and counted. While not recording, a call tests one flag.
// Events hold numbers only; tools/output/trace_writer.h turns them into text. Times are MonotonicSeconds() of this
// rank; pipeline/step_tracer.h brings all ranks' times onto one clock.
// Threads: one. Non-blocking.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/clock.h"
#include "runtime/profiler.h"

namespace hadal {

enum class TraceKind : int32_t {
  kForward,
  kRecompute,       // inside a backward
  kBackward,        // whole, or the half that computes the gradient of the input
  kBackwardWeight,  // the other half
  kSend,            // copies into the ring and posts; includes the wait for a free buffer
  kReceive,         // until the message has arrived
  kArrival,         // a message that arrived before its receive was reached; begin = end = when it was noticed
  kTiedGradients,
  kReduceOverReplicas,  // the part of the sum over replicas that is left after the last backward
  // one message of that sum, from the end of this rank's own gradients to the complete sum
  kReplicaGradients,
  kGlobalNorm,
  kOptimizer,
  kGatherOverReplicas,
  kTiedWeights,
  kDrain,  // waiting at the end of a step until all sends have been received
  kStep,
  kValidation,
  kCheckpoint,
};
inline constexpr int kTraceKinds = 18;

const char* TraceKindName(TraceKind kind);

// Fields that do not apply are -1.
struct TraceEvent {
  TraceKind kind = TraceKind::kStep;
  int32_t chunk = -1;
  int32_t micro_batch = -1;
  int32_t channel = -1;  // pipeline/schedule/schedule.h
  int64_t step = -1;
  int64_t bytes = -1;
  double begin_seconds = 0;
  double end_seconds = 0;
};
static_assert(std::is_trivially_copyable_v<TraceEvent>);  // sent as bytes between ranks of one binary

class TraceBuffer {
 public:
  // Allocates room for `events` events; discards earlier ones.
  void Reserve(int64_t events);
  // Starts recording; events belong to `step`.
  void Start(int64_t step);
  void Stop() { recording_ = false; }
  bool recording() const { return recording_; }

  // 0 while not recording.
  double Now() const { return recording_ ? MonotonicSeconds() : 0; }
  // Adds the event, with the current step, if recording and if there is room.
  void Add(TraceEvent event);

  // Continues recording the same step.
  void Resume() { recording_ = true; }

  // From now on also reports scopes to `profiler`, recording or not, named as those of `stage`. Null: no profiler.
  void ShowTo(Profiler* profiler, int stage) { profiler_ = profiler, stage_ = stage; }
  Profiler* profiler() const { return profiler_; }
  int stage() const { return stage_; }

  std::span<const TraceEvent> events() const { return events_; }
  int64_t dropped() const { return dropped_; }
  // Discards the events; keeps the memory.
  void Clear();

 private:
  std::vector<TraceEvent> events_;  // never grows beyond what was reserved
  int64_t step_ = -1;
  int64_t dropped_ = 0;
  bool recording_ = false;
  Profiler* profiler_ = nullptr;
  int stage_ = 0;
};

// Reports its scope (lifetime) to the buffer's profiler, as "stage 1 backward, micro-batch 3". `trace` may be null.
class TraceRange {
 public:
  TraceRange(TraceBuffer* trace, const TraceEvent& event) : profiler_(trace != nullptr ? trace->profiler() : nullptr) {
    if (profiler_ != nullptr) Begin(trace->stage(), event);
  }
  ~TraceRange() {
    if (profiler_ != nullptr) profiler_->End();
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  void Begin(int stage, const TraceEvent& event);

  Profiler* const profiler_;
};

// Records its scope as an event, and reports it as a TraceRange does: `const TraceScope scope(trace, {.kind =
// TraceKind::kBackward});`. `trace` may be null.
class TraceScope {
 public:
  TraceScope(TraceBuffer* trace, const TraceEvent& event)
      : range_(trace, event), trace_(trace != nullptr && trace->recording() ? trace : nullptr), event_(event) {
    if (trace_ != nullptr) event_.begin_seconds = MonotonicSeconds();
  }
  ~TraceScope() {
    if (trace_ == nullptr) return;
    event_.end_seconds = MonotonicSeconds();
    trace_->Add(event_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const TraceRange range_;
  TraceBuffer* const trace_;
  TraceEvent event_;
};

// Stops recording during its scope, for work outside of training steps.
class TracePause {
 public:
  explicit TracePause(TraceBuffer& trace) : trace_(trace), was_recording_(trace.recording()) { trace_.Stop(); }
  ~TracePause() {
    if (was_recording_) trace_.Resume();
  }
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  TraceBuffer& trace_;
  const bool was_recording_;
};

}  // namespace hadal
