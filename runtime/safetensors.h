// Safetensors files, compatible with Hugging Face's `safetensors` package: a JSON header followed by named tensors.
//
//   8 bytes   length n of the header, little-endian
//   n bytes   JSON: {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3],
//             "data_offsets": [begin, end]}, …}, padded with spaces so that the data begins at a multiple of 8
//   the rest  the tensors' bytes, row-major little-endian, without gaps; offsets count from here
//
// The writer streams and computes CRC-32C while it writes. The reader accepts only files that it has fully validated.
// Format: https://github.com/huggingface/safetensors (README, "Format").
// Limitations: F32, BF16 and I64 only; little-endian machines only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

enum class SafetensorsType : int32_t { kF32, kBF16, kI64 };
// "F32", "BF16", "I64".
const char* SafetensorsTypeName(SafetensorsType type);

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the limit of the reference implementation
inline constexpr char kSafetensorsEnding[] = ".safetensors";        // of file names
inline constexpr char kSafetensorsMetadataKey[] = "__metadata__";

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;
  // The size of the data. REQUIRES: it fits int64 (it does for a reader's tensors).
  int64_t bytes() const;
  bool operator==(const SafetensorsTensor&) const = default;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Size and checksums of a written file, for a manifest.
struct SafetensorsSummary {
  int64_t bytes = 0;
  uint32_t crc32c = 0;       // of the whole file
  int64_t header_bytes = 0;  // including the 8 bytes of the length
  uint32_t header_crc32c = 0;
  std::vector<uint32_t> tensor_crc32c;  // per tensor, in file order
};

// Streams tensors into a new file. Thread safety: one thread at a time. Memory: the header and a buffer of 1 MiB.
class SafetensorsWriter {
 public:
  // Creates the file (which must not exist) and writes the header.
  // REQUIRES: names differ and are not "__metadata__"; sizes ≥ 0.
  // Errors: those of CreateFile and WriteAll.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path, std::vector<SafetensorsTensor> tensors,
                                                  const SafetensorsMetadata& metadata);

  // Appends the next bytes of the tensors' data, in order; pieces may end anywhere. REQUIRES: not more bytes than
  // declared.
  absl::Status Append(std::string_view bytes);

  // Flushes, fsyncs and closes. REQUIRES: all declared bytes have been appended.
  absl::StatusOr<SafetensorsSummary> Finish();

 private:
  SafetensorsWriter(std::string path, FileDescriptor file, std::vector<SafetensorsTensor> tensors);
  absl::Status WriteBuffered(std::string_view bytes);
  absl::Status Flush();
  void EnterNextTensor();

  std::string path_;
  FileDescriptor file_;
  std::vector<SafetensorsTensor> tensors_;
  SafetensorsSummary summary_;
  size_t current_ = 0;        // index of the tensor being written
  int64_t current_left_ = 0;  // bytes missing from that tensor
  std::string buffer_;
};

// Reads files that may be damaged or malicious. Open refuses: a header longer than the file or than 100 MB; JSON that
// is malformed, nested or has a duplicate key; unknown types; shapes whose size overflows or differs from the offsets;
// tensors that overlap, leave gaps or lie outside the file; bytes after the last tensor. Uses pread: truncation while
// reading is an error, not a signal.
// Thread safety: const calls from any thread. Memory: a multiple of the header.
class SafetensorsReader {
 public:
  // Errors: NotFound, DataLoss (with the reason), others of the file system.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);
  // As the other Open, from the open file `file`, which other readers may share. `path` is for messages.
  static absl::StatusOr<SafetensorsReader> Open(std::string path, std::shared_ptr<const FileDescriptor> file);

  // In file order.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  // Returns the index of the tensor called `name`, or -1.
  int32_t Find(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return file_bytes_; }
  int64_t header_bytes() const { return header_bytes_; }
  uint32_t header_crc32c() const { return header_crc32c_; }

  // Reads `bytes` bytes of tensor `tensor`, starting at its byte `offset`, into `destination`. REQUIRES: they lie
  // inside the tensor. Errors: DataLoss if the file has become shorter; those of pread.
  absl::Status Read(int32_t tensor, int64_t offset, int64_t bytes, void* destination) const;

 private:
  SafetensorsReader() = default;
  absl::StatusOr<std::string> ReadHeader();
  absl::Status ParseHeader(const std::string& header);

  std::string path_;
  std::shared_ptr<const FileDescriptor> file_;
  int64_t file_bytes_ = 0;
  int64_t header_bytes_ = 0;
  uint32_t header_crc32c_ = 0;
  SafetensorsMetadata metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<int64_t> offsets_;  // [tensors], from the start of the data
  std::map<std::string, int32_t, std::less<>> by_name_;
};

}  // namespace hadal
