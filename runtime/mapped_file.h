// A file mapped read-only into memory: its pages are read when touched, and shared with other processes.
//
// Limits: if somebody truncates the file while it is mapped, touching a lost page ends the process (SIGBUS);
// mapped_ranges.h says which file it was.
// Thread safety: read-only after Open.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

class MappedFile {
 public:
  // Errors: those of OpenFile (files.h), or what mmap(2) says.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid while the object lives and is not moved from. Starts on a page boundary.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace hadal
