// TFRecord framing: the container of TensorBoard's event files.
//
//   record = length (8 bytes, little-endian) · masked CRC-32C of those 8 bytes (4) · data · masked CRC-32C of data (4)
// A reader stops at a record that is cut short and picks it up when the rest arrives, so records are written whole and flushed.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hadal {

// The framed bytes of one record.
std::string FrameRecord(std::string_view data);

class RecordFile {
 public:
  // Creates `path`, or empties it. Errors: the file cannot be opened.
  static absl::StatusOr<RecordFile> Create(std::string path);

  // Appends one record and flushes it to the operating system. Errors: DataLoss.
  absl::Status Append(std::string_view data);
  const std::string& path() const { return path_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  RecordFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

}  // namespace hadal
