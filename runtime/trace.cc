#include "runtime/trace.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal {

const char* TraceKindName(TraceKind kind) {
  constexpr const char* kWords[kTraceKinds] = {"forward",
                                               "recompute",
                                               "backward",
                                               "backward weights",
                                               "send",
                                               "receive",
                                               "arrival",
                                               "sum tied gradients",
                                               "sum over replicas",
                                               "replicas' gradients",
                                               "global norm",
                                               "optimizer",
                                               "gather over replicas",
                                               "share tied weights",
                                               "wait until sends are received",
                                               "step",
                                               "validation",
                                               "checkpoint"};
  return kWords[static_cast<int>(kind)];
}

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

void TraceRange::Begin(int stage, const TraceEvent& event) {
  std::string text = absl::StrCat("stage ", stage, " ", TraceKindName(event.kind));
  if (event.chunk > 0) absl::StrAppend(&text, ", chunk ", event.chunk);
  if (event.micro_batch >= 0) absl::StrAppend(&text, ", micro-batch ", event.micro_batch);
  profiler_->Begin(text.c_str());
}

}  // namespace hadal
