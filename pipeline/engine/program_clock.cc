#include "pipeline/engine/program_clock.h"

#include <fcntl.h>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/status_macros.h"

namespace hadal {

ProgramClock::~ProgramClock() {
  for (const Part& part : parts_) {
    if (part.end != nullptr) device_->queues().DestroyEvent(part.end);
  }
}

absl::Status ProgramClock::Prepare(Device* device) {
  device_ = device;
  if (device == nullptr) return absl::OkStatus();
  for (Part& part : parts_) {
    HADAL_ASSIGN_OR_RETURN(part.end, device->queues().MakeTimedEvent());
  }
  return absl::OkStatus();
}

void ProgramClock::Begin(StageTimes& times, TraceBuffer& trace, const std::function<void()>& meanwhile) {
  times_ = &times;
  trace_ = &trace;
  meanwhile_ = &meanwhile;
  seen_ = ++last_;  // idle: reached at once
  if (device_ != nullptr) device_->queues().Record(Of(last_).end, DeviceQueues::kMain);
  seen_seconds_ = event_seconds_ = MonotonicSeconds();
}

int64_t ProgramClock::Mark(double StageTimes::*part, const std::optional<TraceEvent>& event) {
  if (last_ - seen_ == kMostAhead) Await(seen_ + 1);
  Part& marked = Of(++last_);
  marked.part = part;
  marked.event = event;
  if (device_ != nullptr) {
    device_->queues().Record(marked.end, DeviceQueues::kMain);
  } else {
    Count(marked, MonotonicSeconds() - seen_seconds_);
  }
  return last_;
}

void ProgramClock::Await(int64_t mark) {
  HADAL_CHECK_LE(mark, last_);
  while (seen_ < mark) {
    device_->queues().AwaitOnHost(Of(seen_ + 1).end, "kernels", meanwhile_);
    CountNext();
  }
}

bool ProgramClock::Poll() {
  while (seen_ < last_ && device_->queues().Reached(Of(seen_ + 1).end)) CountNext();
  return seen_ == last_;
}

void ProgramClock::CountNext() {
  const Part& next = Of(seen_ + 1);
  Count(next, device_->queues().SecondsBetween(Of(seen_).end, next.end));
}

void ProgramClock::Count(const Part& part, double seconds) {
  ++seen_;
  seen_seconds_ += seconds;
  times_->*part.part += seconds;
  if (!part.event) return;
  TraceEvent event = *part.event;
  event.begin_seconds = event_seconds_;
  event.end_seconds = event_seconds_ = seen_seconds_;
  trace_->Add(event);
}

RunQueueClock::RunQueueClock() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

RunQueueClock::~RunQueueClock() {
  if (file_ >= 0) close(file_);
}

double RunQueueClock::Seconds() const {
  char text[96];
  const ssize_t bytes = file_ < 0 ? 0 : pread(file_, text, sizeof(text) - 1, 0);
  if (bytes <= 0) return 0;
  text[bytes] = '\0';
  unsigned long long running = 0, ready = 0;
  return std::sscanf(text, "%llu %llu", &running, &ready) == 2 ? 1e-9 * static_cast<double>(ready) : 0;
}

}  // namespace hadal
