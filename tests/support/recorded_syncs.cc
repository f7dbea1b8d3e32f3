#include "tests/support/recorded_syncs.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <new>
#include <system_error>
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
  std::vector<std::pair<std::string, std::function<void()>>> actions;  // by a path's end
};

Record& TheRecord() {
  static auto& record = *new Record();
  return record;
}

std::string PathOf(int fd) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored).string();
}

// What is to happen before a sync of `path`; it is no longer pending then. Empty: nothing.
std::function<void()> TakeAction(const std::string& path) {
  const std::lock_guard lock(TheRecord().mutex);
  auto& actions = TheRecord().actions;
  const auto found =
      std::find_if(actions.begin(), actions.end(), [&](const auto& a) { return path.ends_with(a.first); });
  if (found == actions.end()) return {};
  std::function<void()> action = std::move(found->second);
  actions.erase(found);
  return action;
}

}  // namespace

RecordedSyncs::RecordedSyncs() {
  const std::lock_guard lock(TheRecord().mutex);
  HADAL_CHECK(!std::exchange(TheRecord().recording, true));
  TheRecord().next_error = 0;
  TheRecord().until_throw = 0;
  TheRecord().paths.clear();
  TheRecord().actions.clear();
}

RecordedSyncs::~RecordedSyncs() {
  const std::lock_guard lock(TheRecord().mutex);
  TheRecord().recording = false;
  TheRecord().actions.clear();
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

void RecordedSyncs::Before(std::string end, std::function<void()> action) {
  const std::lock_guard lock(TheRecord().mutex);
  TheRecord().actions.emplace_back(std::move(end), std::move(action));
}

}  // namespace hadal

extern "C" int fsync(int fd) {
  hadal::Record& record = hadal::TheRecord();
  const std::string path = hadal::PathOf(fd);
  if (const std::function<void()> action = hadal::TakeAction(path)) action();
  {
    const std::lock_guard lock(record.mutex);
    if (record.recording) {
      if (const int error = std::exchange(record.next_error, 0); error != 0) {
        errno = error;
        return -1;
      }
      if (record.until_throw > 0 && --record.until_throw == 0) throw std::bad_alloc();
      record.paths.push_back(path);
    }
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}
