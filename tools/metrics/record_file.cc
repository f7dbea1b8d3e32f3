#include "tools/metrics/record_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/crc32c.h"

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
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be created: ", std::strerror(errno)));
  }
  return RecordFile(std::move(path), file);
}

absl::Status RecordFile::Append(std::string_view data) {
  const std::string frame = FrameRecord(data);
  if (std::fwrite(frame.data(), 1, frame.size(), file_.get()) == frame.size() && std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(path_, ": a record could not be written: ", std::strerror(errno), "; is the disk full?"));
}

}  // namespace hadal
