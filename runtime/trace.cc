#include "runtime/trace.h"

#include "runtime/check.h"

namespace hadal {

void TraceBuffer::Reserve(int64_t events) {
  HADAL_CHECK(!recording_);
  events_ = {};
  events_.reserve(static_cast<size_t>(events));
  dropped_ = 0;
}

void TraceBuffer::Start(int64_t step) {
  step_ = step;
  recording_ = true;
}

void TraceBuffer::Add(TraceEvent event) {
  if (!recording_) return;
  if (events_.size() == events_.capacity()) {
    ++dropped_;
    return;
  }
  event.step = step_;
  events_.push_back(event);
}

void TraceBuffer::Clear() {
  events_.clear();
  dropped_ = 0;
}

}  // namespace hadal
