// Names for what the host launches, for a profiler outside of the process: nested ranges of text (NVTX, on a GPU).
//
// Kernels run after the call that launched them; a profiler draws them in the range in which they were launched. So the
// ranges say which stage, micro-batch and sublayer a kernel belongs to. Without a profiler Device::profiler() is null,
// and a range costs one comparison.
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

// A range "`what` `number`" for the object's scope; does nothing where the stream's device has no profiler.
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
