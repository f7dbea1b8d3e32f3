// The format of a corpus shard (one file of a corpus's samples), its writer and its checks. Internal to runtime/data.
//
//   header          32 bytes   ShardHeader
//   records         32 bytes per sample   SampleRecord
//   tokens          4 bytes each, int32: for each sample prefix, source, target, without gaps
// In a corpus of speech a sample has no prefix; its source is float32 values, [frames, frame width], and its
// source_tokens is the number of these values.
// Little-endian; every field is aligned to its size. The checksum of the file is in the manifest.
// Thread safety: one thread at a time may use a ShardBuilder; any thread may call any method of a CorpusShard.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/mapped_file.h"

namespace hadal {

struct ShardHeader {
  static constexpr uint64_t kMagic = 0x647273'6c6164'6168;  // "hadalsrd" in memory
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  int64_t samples = 0;
  int64_t tokens = 0;
};
static_assert(sizeof(ShardHeader) == 32);

struct SampleRecord {
  int64_t first_token = 0;  // index into the shard's tokens
  int32_t prefix_tokens = 0;
  int32_t source_tokens = 0;
  int32_t target_tokens = 0;
  int32_t corpus_id = 0;
  float weight = 1;
  uint32_t reserved = 0;
};
static_assert(sizeof(SampleRecord) == 32);

// Collects samples and produces the shard's bytes.
class ShardBuilder {
 public:
  // Errors: InvalidArgument for a side of more than 2^31 - 1 tokens or values.
  absl::Status Add(const SampleView& sample);
  int64_t samples() const { return static_cast<int64_t>(records_.size()); }
  // The size of the shard's file so far.
  int64_t bytes() const;
  // Returns the file as consecutive pieces without copying: header, records, tokens. Valid until the builder changes.
  std::array<std::string_view, 3> Pieces();
  void Clear();

 private:
  ShardHeader header_;  // returned by Pieces()
  std::vector<SampleRecord> records_;
  std::vector<int32_t> tokens_;
};

struct ShardLimits {
  int32_t source_vocabulary_size = 0;  // 0: samples have no source side
  int32_t target_vocabulary_size = 0;
  int32_t corpora = 0;                  // corpus ids are from 0 to corpora - 1
  int32_t frame_width = 0;              // > 0: sources are frames of this many values
  int32_t least_token = kUnknownToken;  // lowest token id; 0 where </s> or a tokenizer's own ids may occur
  int32_t least_target = 0;             // fewest tokens of a target; 2 in a corpus of blocks (packed_batch.h)
};

enum class ShardCheck {
  kEveryByte,  // size, structure, checksum, every token id and value
  kRecords,    // size and structure, which keep reads inside the file
};

class CorpusShard {
 public:
  // Errors: DataLoss with the file, the sample if there is one, and a remedy.
  static absl::StatusOr<std::unique_ptr<CorpusShard>> Open(const std::string& path, const ShardReference& reference,
                                                           const ShardLimits& limits,
                                                           ShardCheck check = ShardCheck::kEveryByte);

  int64_t samples() const { return static_cast<int64_t>(records_.size()); }
  // REQUIRES: 0 ≤ i < samples(). If the file is changed meanwhile, the result stays inside it but has no meaning.
  SampleView sample(int64_t i) const;
  // Returns OK if all bytes read so far are those of the verified file. Compares the file's size and modification time
  // with those of the last verification; if only the time differs, reads the file and compares its checksum.
  // Errors: DataLoss with the file if it has changed.
  absl::Status CheckUnchanged() const;
  const std::string& path() const { return path_; }
  // Prefetches the lengths of sample(i) into the CPU's cache. REQUIRES: as sample().
  void Prefetch(int64_t i) const { __builtin_prefetch(&records_[static_cast<size_t>(i)]); }

 private:
  explicit CorpusShard(MappedFile file) : file_(std::move(file)) {}
  // Validates `bytes` and sets records_ and tokens_. The error message lacks the file's name.
  absl::Status Parse(std::span<const std::byte> bytes, const ShardLimits& limits, ShardCheck check);

  MappedFile file_;
  std::string path_;
  uint32_t crc32c_ = 0;                                    // of the file's bytes
  mutable std::atomic<int64_t> verified_nanoseconds_ = 0;  // its modification time when it was last verified
  std::span<const SampleRecord> records_;
  std::span<const int32_t> tokens_;
  bool has_source_ = true;
  int32_t frame_width_ = 0;
};

}  // namespace hadal
