#include "runtime/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "runtime/files.h"
#include "runtime/mapped_ranges.h"
#include "runtime/status_macros.h"

namespace hadal {

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
