// TFRecord framing: the container of TensorBoard's event files.
//
//   record = length (8 bytes, little-endian) · masked CRC-32C of those 8 bytes (4) · data · masked CRC-32C of data (4)
// A reader stops at a truncated record and continues when the rest arrives, so records are written whole
// (append_whole.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

// The framed bytes of one record.
std::string FrameRecord(std::string_view data);

class RecordFile {
 public:
  // Creates `path`, or truncates it. Errors: the file cannot be opened.
  static absl::StatusOr<RecordFile> Create(std::string path);

  // Appends one record, whole or not at all. Errors: those of writing.
  absl::Status Append(std::string_view data);
  const std::string& path() const { return path_; }

 private:
  RecordFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  FileDescriptor file_;
};

}  // namespace hadal
