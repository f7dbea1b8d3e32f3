// What a test's own process asks the system to make durable: every fsync(2) while it lives, by path, and failures on
// demand.
//
// A test program that links hadal_recorded_syncs has its own fsync, which calls the system's. One lives at a time.
// Thread safety: files may be synced on any thread; the methods are for the test's.
#pragma once

#include <string>
#include <vector>

namespace hadal {

class RecordedSyncs {
 public:
  RecordedSyncs();
  ~RecordedSyncs();
  RecordedSyncs(const RecordedSyncs&) = delete;
  RecordedSyncs& operator=(const RecordedSyncs&) = delete;

  // The paths as they were called at the time, oldest first.
  std::vector<std::string> paths() const;
  // The next fsync does nothing and fails with `error`.
  void FailNext(int error);
  // The fsync after `before` more does nothing and throws std::bad_alloc, as any call can that takes memory.
  void ThrowAfter(int before);
};

}  // namespace hadal
