#include "tests/support/recorded_syncs.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/check.h"

namespace hadal {
namespace {

// The only state that a replaced system call can reach.
struct Record {
  std::mutex mutex;
  bool recording = false;
  int next_error = 0;
  int until_throw = 0;  // 1: the next one throws; 0: none
  std::vector<std::string> paths;
};

Record& TheRecord() {
  static auto& record = *new Record();
  return record;
}

}  // namespace

RecordedSyncs::RecordedSyncs() {
  const std::lock_guard lock(TheRecord().mutex);
  HADAL_CHECK(!std::exchange(TheRecord().recording, true));
  TheRecord().next_error = 0;
  TheRecord().until_throw = 0;
  TheRecord().paths.clear();
}

RecordedSyncs::~RecordedSyncs() {
  const std::lock_guard lock(TheRecord().mutex);
  TheRecord().recording = false;
}

std::vector<std::string> RecordedSyncs::paths() const {
  const std::lock_guard lock(TheRecord().mutex);
  return TheRecord().paths;
}

void RecordedSyncs::FailNext(int error) {
  const std::lock_guard lock(TheRecord().mutex);
  TheRecord().next_error = error;
}

void RecordedSyncs::ThrowAfter(int before) {
  const std::lock_guard lock(TheRecord().mutex);
  TheRecord().until_throw = before + 1;
}

}  // namespace hadal

extern "C" int fsync(int fd) {
  hadal::Record& record = hadal::TheRecord();
  {
    const std::lock_guard lock(record.mutex);
    if (record.recording) {
      if (const int error = std::exchange(record.next_error, 0); error != 0) {
        errno = error;
        return -1;
      }
      if (record.until_throw > 0 && --record.until_throw == 0) throw std::bad_alloc();
      std::error_code ignored;
      record.paths.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored).string());
    }
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}
