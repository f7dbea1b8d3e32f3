// Named, nested ranges around launches, for an external profiler (NVTX on a GPU).
//
// A profiler shows a kernel in the range that launched it, although it runs later: the ranges name its stage,
// micro-batch and sublayer. Device::profiler() is null without a profiler; a range then costs one comparison.
// Threads: one.
#pragma once

#include <cstdint>

#include "runtime/stream.h"

namespace hadal {

class Profiler {
 public:
  virtual ~Profiler() = default;
  // Copies `text`. Ranges end in the reverse order of their beginnings.
  virtual void Begin(const char* text) = 0;
  virtual void End() = 0;
};

// The range "`what` `number`" for the object's scope. Does nothing if the stream's device has no profiler.
class ProfilerRange {
 public:
  ProfilerRange(const Stream& stream, const char* what, int64_t number)
      : profiler_(stream.device() != nullptr ? stream.device()->profiler() : nullptr) {
    if (profiler_ != nullptr) Begin(what, number);
  }
  ~ProfilerRange() {
    if (profiler_ != nullptr) profiler_->End();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  void Begin(const char* what, int64_t number);
  Profiler* const profiler_;
};

}  // namespace hadal
