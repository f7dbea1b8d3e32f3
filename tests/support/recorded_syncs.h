// Records every fsync(2) of the test's process while the object lives, by path, and can make one fail, slow, or run an
// action.
//
// A test program that links hadal_recorded_syncs has its own fsync, which calls the system's. Only one object may exist
// at a time. Thread safety: files may be synced on any thread; only the test's thread may call the methods.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hadal {

class RecordedSyncs {
 public:
  RecordedSyncs();
  ~RecordedSyncs();
  RecordedSyncs(const RecordedSyncs&) = delete;
  RecordedSyncs& operator=(const RecordedSyncs&) = delete;

  // The paths as they were named at the time of the sync, oldest first.
  std::vector<std::string> paths() const;
  // Makes the next fsync do nothing and fail with `error`.
  void FailNext(int error);
  // Makes the fsync after `before` others do nothing and throw std::bad_alloc, as any call that allocates memory may.
  void ThrowAfter(int before);
  // Calls `action` once, just before the next fsync of a path that ends with `end`, on the same thread; it may sync
  // files.
  void Before(std::string end, std::function<void()> action);
};

}  // namespace hadal
