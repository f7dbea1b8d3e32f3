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
  kRecompute,           // inside a backward
  kBackward,            // whole, or the half that computes the gradient of the input
  kBackwardWeight,      // the other half
  kSend,                // waiting for a free send buffer, copying into it, posting the message
  kReceive,             // waiting until the message has arrived
  kArrival,             // a message arrived before the rank waited for it; begin = end = when the rank noticed
  kTiedGradients,       // summing the gradients of an embedding table that several stages use
  kReduceOverReplicas,  // the part of the gradients' sum over replicas that is left after the last backward
  kReplicaGradients,    // one piece of that sum: from this rank's last gradient of the piece to the complete sum
  kGlobalNorm,
  kOptimizer,
  kGatherOverReplicas,  // distributing the updated weights (ZeRO)
  kTiedWeights,         // sending an updated embedding table to the other stages that use it
  kDrain,               // waiting at the end of a step until all sends have been received
  kStep,
  kValidation,
  kCheckpoint,
};
inline constexpr int kTraceKinds = 18;

const char* TraceKindName(TraceKind kind);

// Fields that do not apply are -1.
struct TraceEvent {
  TraceKind kind = TraceKind::kStep;
  int32_t chunk = -1;  // the rank's part of the model (pipeline/stage/chunk.h)
  int32_t micro_batch = -1;
  int32_t channel = -1;  // of a message (pipeline/schedule/schedule.h)
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
  // Starts recording; events from now on belong to `step`.
  void Start(int64_t step);
  void Stop() { recording_ = false; }
  bool recording() const { return recording_; }

  // 0 while not recording.
  double Now() const { return recording_ ? MonotonicSeconds() : 0; }
  // Adds the event, with the current step, if recording and if there is room.
  void Add(TraceEvent event);

  // Continues recording the same step.
  void Resume() { recording_ = true; }

  // Makes TraceRange and TraceScope also report to `profiler` from now on, recording or not, under the name of `stage`.
  // Null: no profiler.
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
