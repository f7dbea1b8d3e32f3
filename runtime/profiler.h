// Names of what the host is launching, for a profiler that looks at the process from outside: nested ranges of text (NVTX, on a GPU).
//
// Kernels run after the call that launched them; a profiler draws their time under the range in which they were launched. So the ranges say
// which stage, micro-batch and sublayer a kernel belongs to. Where nobody looks there is no Profiler (Device::profiler() is null), and a
// range costs a comparison.
// Threads: one.
#pragma once

#include <cstdint>

#include "runtime/stream.h"

namespace hadal {

class Profiler {
 public:
  virtual ~Profiler() = default;
  // `text` is copied. Ranges end in the reverse order of their beginnings.
  virtual void Begin(const char* text) = 0;
  virtual void End() = 0;
};

// "`what` `number`", for its own scope, where the stream's device is looked at.
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
