// A file mapped read-only into memory. Pages are read when they are touched and are shared with other processes.
//
// If another program writes to the file, the bytes change; compare its modification time (StampOf) to detect that.
// Limitation: if the file is truncated while it is mapped, touching a lost page ends the process (SIGBUS);
// MappedPathAt finds the file's path for the message.
// Thread safety: read-only after Open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hadal {

// A process-wide record of mapped address ranges, which MappedFile keeps up to date. A SIGBUS handler gets an address
// and no error, and looks up the file of that address here, for its message.
// Limits: keeps up to kMostMappedRanges ranges, ignores further ones; keeps only the end of a long path.
// Thread safety: any thread. MappedPathAt may be called in a signal handler: it neither blocks nor allocates.
inline constexpr int kMostMappedRanges = 1024;

// Records that `bytes` are mapped from the file `path`.
void RememberMappedRange(std::span<const std::byte> bytes, std::string_view path);
// Removes the record of `bytes`.
void ForgetMappedRange(std::span<const std::byte> bytes);
// Returns the path of the file that contains `address`, valid until its range is forgotten; null if there is none.
const char* MappedPathAt(const void* address);

// File attributes that change when the contents change. The time has the resolution of the kernel's clock (some
// milliseconds).
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_nanoseconds = 0;
};

// Unmaps the file when it is destroyed.
class MappedFile {
 public:
  // Errors: those of OpenFile (files.h) and of mmap(2).
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Starts on a page boundary. Valid while the object exists and is not moved from.
  std::span<const std::byte> bytes() const { return bytes_; }
  // As of Open.
  const FileStamp& stamp() const { return stamp_; }

 private:
  MappedFile(std::span<const std::byte> bytes, const FileStamp& stamp) : bytes_(bytes), stamp_(stamp) {}

  std::span<const std::byte> bytes_;
  FileStamp stamp_;
};

// Returns the current stamp of the file at `path`; follows symbolic links. Blocking: one stat(2).
absl::StatusOr<FileStamp> StampOf(const std::string& path);

}  // namespace hadal
