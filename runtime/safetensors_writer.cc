#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/safetensors.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

constexpr size_t kBufferBytes = size_t{1} << 20;

// Returns the length and the padded JSON. Keys are in file order.
std::string MakeHeader(const std::vector<SafetensorsTensor>& tensors, const SafetensorsMetadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) absl::StrAppend(&json, "\"", kSafetensorsMetadataKey, "\":", Json(metadata).dump());
  int64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    absl::StrAppend(&json, json.size() > 1 ? "," : "", Json(tensor.name).dump(), ":{\"dtype\":\"",
                    SafetensorsTypeName(tensor.type), "\",\"shape\":", Json(tensor.shape).dump(), ",\"data_offsets\":[",
                    offset, ",", offset + tensor.bytes(), "]}");
    offset += tensor.bytes();
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string header;
  AppendList(json, header);
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, FileDescriptor file, std::vector<SafetensorsTensor> tensors)
    : path_(std::move(path)), file_(std::move(file)), tensors_(std::move(tensors)) {}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            std::vector<SafetensorsTensor> tensors,
                                                            const SafetensorsMetadata& metadata) {
  const std::string header = MakeHeader(tensors, metadata);
  if (static_cast<int64_t>(header.size()) - kSafetensorsLengthBytes > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", tensors.size(), " tensors need a header of ", header.size(),
                     " bytes, the format's limit is ", kMaxSafetensorsHeaderBytes, "; save with more ranks"));
  }
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, CreateFile(path));
  SafetensorsWriter writer(path, std::move(file), std::move(tensors));
  writer.summary_.header_bytes = static_cast<int64_t>(header.size());
  writer.summary_.header_crc32c = Crc32c(header.data(), header.size());
  writer.summary_.tensor_crc32c.assign(writer.tensors_.size(), 0);
  writer.current_left_ = writer.tensors_.empty() ? 0 : writer.tensors_.front().bytes();
  HADAL_RETURN_IF_ERROR(writer.WriteBuffered(header));
  return writer;
}

absl::Status SafetensorsWriter::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    EnterNextTensor();
    HADAL_CHECK_LT(current_, tensors_.size());
    // In buffer-sized pieces, so that both checksums and the copy find the bytes in the cache.
    const size_t count = std::min({bytes.size(), static_cast<size_t>(current_left_), kBufferBytes});
    uint32_t& crc = summary_.tensor_crc32c[current_];
    crc = Crc32c(bytes.data(), count, crc);
    HADAL_RETURN_IF_ERROR(WriteBuffered(bytes.substr(0, count)));
    current_left_ -= static_cast<int64_t>(count);
    bytes.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsSummary> SafetensorsWriter::Finish() {
  EnterNextTensor();
  HADAL_CHECK(tensors_.empty() || (current_ + 1 >= tensors_.size() && current_left_ == 0));
  HADAL_RETURN_IF_ERROR(Flush());
  HADAL_RETURN_IF_ERROR(SyncFile(file_, path_));
  HADAL_RETURN_IF_ERROR(file_.Close(path_));
  return std::move(summary_);
}

// Skips finished and empty tensors.
void SafetensorsWriter::EnterNextTensor() {
  while (current_left_ == 0 && current_ + 1 < tensors_.size()) current_left_ = tensors_[++current_].bytes();
}

absl::Status SafetensorsWriter::WriteBuffered(std::string_view bytes) {
  summary_.crc32c = Crc32c(bytes.data(), bytes.size(), summary_.crc32c);
  summary_.bytes += static_cast<int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() > kBufferBytes) HADAL_RETURN_IF_ERROR(Flush());
  if (bytes.size() >= kBufferBytes) return WriteAll(file_, bytes, path_);
  buffer_.append(bytes);
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Flush() {
  absl::Status status = WriteAll(file_, buffer_, path_);
  buffer_.clear();
  return status;
}

}  // namespace hadal
