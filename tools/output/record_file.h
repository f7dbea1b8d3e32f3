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
#include "tools/output/append_whole.h"

namespace hadal {

// The framed bytes of one record.
std::string FrameRecord(std::string_view data);

class RecordFile {
 public:
  // Creates `path`, or truncates it. Errors: the file cannot be opened.
  static absl::StatusOr<RecordFile> Create(std::string path);

  // Appends one record, whole, now or when there is space again (WholeAppender). Errors: those of writing.
  absl::Status Append(std::string_view data) { return file_.Append(FrameRecord(data)); }
  // Errors: those of writing; then records are missing.
  absl::Status WriteHeld() { return file_.WriteHeld(); }
  const std::string& path() const { return file_.path(); }

 private:
  explicit RecordFile(WholeAppender file) : file_(std::move(file)) {}

  WholeAppender file_;
};

}  // namespace hadal
