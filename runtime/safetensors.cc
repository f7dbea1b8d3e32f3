#include "runtime/safetensors.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/json_fields.h"
#include "runtime/status_macros.h"

namespace hadal {

namespace {

// In the order of the enumerators.
struct TypeRow {
  const char* name;
  int64_t bytes;
};
constexpr TypeRow kTypes[] = {{"F32", 4}, {"BF16", 2}, {"I64", 8}};

const TypeRow& RowOf(SafetensorsType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

const char* SafetensorsTypeName(SafetensorsType type) { return RowOf(type).name; }

int64_t SafetensorsTensor::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), RowOf(type).bytes, std::multiplies<>());
}

// ---- Writing ----

namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

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
    return InvalidArgumentError("cannot write ", path, ": ", tensors.size(), " tensors need a header of ",
                                header.size(), " bytes, the format's limit is ", kMaxSafetensorsHeaderBytes,
                                "; save with more ranks");
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
    HADAL_CHECK_GT(current_left_, 0);
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

// ---- Reading ----

namespace {

constexpr int kHeaderDepth = 3;  // {name: {"shape": [..]}}

std::optional<SafetensorsType> ParseTypeName(std::string_view name) {
  const auto* const row = std::ranges::find(kTypes, name, &TypeRow::name);
  if (row == std::end(kTypes)) return std::nullopt;
  return static_cast<SafetensorsType>(row - kTypes);
}

// Returns a · b; nullopt if a factor is negative or the product overflows.
std::optional<int64_t> Multiply(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<int64_t> NonNegative(const Json& value) {
  const std::optional<int64_t> number = JsonInteger<int64_t>(value);
  return number.value_or(-1) >= 0 ? number : std::nullopt;
}

struct ParsedTensor {
  SafetensorsTensor tensor;
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<ParsedTensor> ParseTensor(const std::string& name, const Json& value) {
  const auto error = [&](const std::string& what) { return DataLossError("tensor \"", name, "\": ", what); };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return error("it needs exactly dtype, shape and data_offsets");
  }
  ParsedTensor result;
  result.tensor.name = name;
  const Json& dtype = value["dtype"];
  const auto type = dtype.is_string() ? ParseTypeName(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!type) return error(absl::StrCat("dtype ", dtype.dump(), " is none of F32, BF16, I64"));
  result.tensor.type = *type;

  if (!value["shape"].is_array()) return error("its shape is not a list");
  std::optional<int64_t> bytes = RowOf(*type).bytes;
  for (const Json& dimension : value["shape"]) {
    const std::optional<int64_t> size = NonNegative(dimension);
    if (!size) return error(absl::StrCat("its shape has the dimension ", dimension.dump()));
    result.tensor.shape.push_back(*size);
    bytes = Multiply(*bytes, *size);
    if (!bytes) return error("the size of its shape overflows");
  }

  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !NonNegative(offsets[0]) || !NonNegative(offsets[1])) {
    return error("its data_offsets are not two numbers");
  }
  result.begin = *NonNegative(offsets[0]);
  result.end = *NonNegative(offsets[1]);
  if (result.end < result.begin || result.end - result.begin != *bytes) {
    return error(absl::StrCat("its shape and dtype make ", *bytes, " bytes, its data_offsets are [", result.begin, ", ",
                              result.end, ")"));
  }
  return result;
}

absl::StatusOr<SafetensorsMetadata> ParseMetadata(const Json& value) {
  if (!value.is_object()) return DataLossError("__metadata__ is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return DataLossError("__metadata__ \"", key, "\" is not a text");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Sorts by offset and checks that the tensors fill [0, data_bytes) without gaps and overlaps.
absl::Status SortAndCheckPlaces(std::vector<ParsedTensor>& tensors, int64_t data_bytes) {
  std::ranges::sort(tensors, {}, [](const ParsedTensor& t) { return std::tie(t.begin, t.end, t.tensor.name); });
  int64_t at = 0;
  for (const ParsedTensor& parsed : tensors) {
    if (parsed.end > data_bytes) {
      return DataLossError("tensor \"", parsed.tensor.name, "\" ends at byte ", parsed.end,
                           " of the data, which has only ", data_bytes, ": cut short?");
    }
    if (parsed.begin != at) {
      return DataLossError("tensor \"", parsed.tensor.name, "\" begins at byte ", parsed.begin, " of the data, ",
                           parsed.begin < at ? "inside another one" : "after a gap", "; expected ", at);
    }
    at = parsed.end;
  }
  if (at != data_bytes) return DataLossError(data_bytes - at, " bytes follow the last tensor");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path));
  return Open(path, std::make_shared<const FileDescriptor>(std::move(file)));
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(std::string path,
                                                          std::shared_ptr<const FileDescriptor> file) {
  SafetensorsReader reader;
  reader.path_ = std::move(path);
  reader.file_ = std::move(file);
  HADAL_ASSIGN_OR_RETURN(const std::string header, reader.ReadHeader());
  if (absl::Status status = reader.ParseHeader(header); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(reader.path_, ": ", status.message()));
  }
  return reader;
}

absl::StatusOr<std::string> SafetensorsReader::ReadHeader() {
  HADAL_ASSIGN_OR_RETURN(file_bytes_, FileBytes(*file_, path_));
  if (file_bytes_ < kSafetensorsLengthBytes) {
    return DataLossError(path_, " has ", file_bytes_, " bytes, too few for a safetensors file");
  }
  uint64_t length = 0;
  HADAL_RETURN_IF_ERROR(ReadAt(*file_, 0, kSafetensorsLengthBytes, &length, path_));
  const int64_t limit = std::min(file_bytes_ - kSafetensorsLengthBytes, kMaxSafetensorsHeaderBytes);
  if (length > static_cast<uint64_t>(limit)) {
    return DataLossError(path_, " says that its header has ", length, " bytes; at most ", limit,
                         " are possible: not a safetensors file, or cut short");
  }
  header_bytes_ = kSafetensorsLengthBytes + static_cast<int64_t>(length);
  std::string header(static_cast<size_t>(header_bytes_), '\0');
  HADAL_RETURN_IF_ERROR(ReadAt(*file_, 0, header_bytes_, header.data(), path_));
  header_crc32c_ = Crc32c(header.data(), header.size());
  return header.substr(kSafetensorsLengthBytes);
}

absl::Status SafetensorsReader::ParseHeader(const std::string& header) {
  HADAL_ASSIGN_OR_RETURN(
      const Json json,
      ParseStrictJson(header, {.max_bytes = kMaxSafetensorsHeaderBytes, .max_depth = kHeaderDepth}, "header"));
  if (!json.is_object()) return DataLossError("the header is not a JSON object");
  std::vector<ParsedTensor> parsed;
  for (const auto& [name, value] : json.items()) {
    if (name == kSafetensorsMetadataKey) {
      HADAL_ASSIGN_OR_RETURN(metadata_, ParseMetadata(value));
    } else {
      HADAL_ASSIGN_OR_RETURN(ParsedTensor tensor, ParseTensor(name, value));
      parsed.push_back(std::move(tensor));
    }
  }
  HADAL_RETURN_IF_ERROR(SortAndCheckPlaces(parsed, file_bytes_ - header_bytes_));
  for (ParsedTensor& tensor : parsed) {
    by_name_.emplace(tensor.tensor.name, static_cast<int32_t>(tensors_.size()));
    offsets_.push_back(tensor.begin);
    tensors_.push_back(std::move(tensor.tensor));
  }
  return absl::OkStatus();
}

int32_t SafetensorsReader::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

absl::Status SafetensorsReader::Read(int32_t tensor, int64_t offset, int64_t bytes, void* destination) const {
  HADAL_CHECK_GE(offset, 0);
  HADAL_CHECK_LE(offset + bytes, tensors_[tensor].bytes());
  return ReadAt(*file_, header_bytes_ + offsets_[tensor] + offset, bytes, destination, path_);
}

}  // namespace hadal
