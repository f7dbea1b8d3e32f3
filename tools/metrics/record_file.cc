#include "tools/metrics/record_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "runtime/crc32c.h"
#include "runtime/status_macros.h"
#include "tools/metrics/append_whole.h"

namespace hadal {
namespace {

void AppendLittleEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

}  // namespace

std::string FrameRecord(std::string_view data) {
  std::string frame;
  frame.reserve(data.size() + 16);
  AppendLittleEndian(frame, data.size(), 8);
  AppendLittleEndian(frame, MaskCrc32c(Crc32c(frame.data(), 8)), 4);
  frame += data;
  AppendLittleEndian(frame, MaskCrc32c(Crc32c(data.data(), data.size())), 4);
  return frame;
}

absl::StatusOr<RecordFile> RecordFile::Create(std::string path) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenForAppending(path));
  // A device has no length to set.
  if (ftruncate(file.get(), 0) != 0 && errno != EINVAL) return ErrnoStatus(errno, "empty", path);
  return RecordFile(std::move(path), std::move(file));
}

absl::Status RecordFile::Append(std::string_view data) { return AppendWhole(file_, FrameRecord(data), path_); }

}  // namespace hadal
