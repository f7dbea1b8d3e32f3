#include "runtime/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr uintptr_t kFree = 0, kBeingWritten = 1;  // no mapping has these addresses

struct Range {
  std::atomic<uintptr_t> begin = kFree;  // written last
  std::atomic<uintptr_t> end = 0;
  char path[256] = {};
};

// Global, because a signal handler can access nothing else.
Range ranges[kMostMappedRanges];
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

uintptr_t AddressOf(const void* place) { return reinterpret_cast<uintptr_t>(place); }

}  // namespace

void RememberMappedRange(std::span<const std::byte> bytes, std::string_view path) {
  for (Range& range : ranges) {
    uintptr_t expected = kFree;
    if (!range.begin.compare_exchange_strong(expected, kBeingWritten)) continue;
    range.end = AddressOf(bytes.data() + bytes.size());
    if (path.size() >= sizeof(range.path)) path.remove_prefix(path.size() - sizeof(range.path) + 1);
    range.path[path.copy(range.path, path.size())] = '\0';
    range.begin = AddressOf(bytes.data());
    return;
  }
}

void ForgetMappedRange(std::span<const std::byte> bytes) {
  for (Range& range : ranges) {
    uintptr_t begin = AddressOf(bytes.data());
    if (range.begin.compare_exchange_strong(begin, kFree)) return;
  }
}

const char* MappedPathAt(const void* address) {
  const uintptr_t place = AddressOf(address);
  for (const Range& range : ranges) {
    const uintptr_t begin = range.begin;
    if (begin > kBeingWritten && begin <= place && place < range.end) return range.path;
  }
  return nullptr;
}

namespace {

FileStamp StampFrom(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .bytes = info.st_size,
          .modified_nanoseconds = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

absl::StatusOr<FileStamp> StampOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  return StampFrom(info);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  const FileStamp stamp = StampFrom(info);
  if (stamp.bytes == 0) return MappedFile();  // mmap refuses a length of 0
  void* base = mmap(nullptr, static_cast<size_t>(stamp.bytes), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "map", path);
  const std::span mapped(static_cast<const std::byte*>(base), static_cast<size_t>(stamp.bytes));
  RememberMappedRange(mapped, path);
  return MappedFile(mapped, stamp);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})), stamp_(other.stamp_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ForgetMappedRange(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace hadal
