// A file mapped read-only into memory. Pages are read when they are touched and are shared with other processes.
//
// Limitation: if the file is truncated while it is mapped, touching a lost page ends the process (SIGBUS);
// mapped_ranges.h finds the file's path for the message.
// Thread safety: read-only after Open.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

class MappedFile {
 public:
  // Errors: those of OpenFile (files.h) and of mmap(2).
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Starts on a page boundary. Valid while the object lives and is not moved from.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace hadal
