#include "tools/output/record_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "runtime/bytes.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {

std::string FrameRecord(std::string_view data) {
  std::string frame;
  frame.reserve(data.size() + 16);
  AppendValue(uint64_t{data.size()}, frame);
  AppendValue(MaskCrc32c(Crc32c(frame.data(), frame.size())), frame);
  frame += data;
  AppendValue(MaskCrc32c(Crc32c(data.data(), data.size())), frame);
  return frame;
}

absl::StatusOr<RecordFile> RecordFile::Create(std::string path) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenForAppending(path));
  // A device cannot be truncated.
  if (ftruncate(file.get(), 0) != 0 && errno != EINVAL) return ErrnoStatus(errno, "empty", path);
  return RecordFile(WholeAppender(std::move(file), std::move(path)));
}

}  // namespace hadal
