#include "runtime/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "runtime/files.h"
#include "runtime/mapped_ranges.h"
#include "runtime/status_macros.h"

namespace hadal {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path));
  HADAL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file, path));
  if (bytes == 0) return MappedFile();  // mmap refuses a length of 0
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "map", path);
  const std::span mapped(static_cast<const std::byte*>(base), static_cast<size_t>(bytes));
  RememberMappedRange(mapped, path);
  return MappedFile(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ForgetMappedRange(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace hadal
