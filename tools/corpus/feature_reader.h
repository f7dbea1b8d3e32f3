// Reads the features of utterances that tools/python/speech_features.py writes (docs/speech.md has the format):
// PREFIX.json, the manifest, and PREFIX.00000.features, …
//
// The files are not trusted: sizes, checksums and counts are compared, and every value must be finite.
// Thread safety: one thread at a time. Memory: maps one shard at a time. Blocking: reads files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/input_kind.h"
#include "runtime/mapped_file.h"

namespace hadal {

struct FeatureShard {
  std::string file;  // relative to the manifest
  int64_t bytes = 0;
  int64_t utterances = 0;
  int64_t frames = 0;
  uint32_t crc32 = 0;  // zlib's, of everything after the header
};

struct FeatureManifest {
  int32_t frame_width = 0;
  int32_t sample_rate = 0;  // Hz
  std::string cmvn;         // mean and variance normalisation of the features: "utterance" or "none"
  int64_t utterances = 0;
  int64_t frames = 0;
  std::vector<FeatureShard> shards;
  int64_t text_bytes = -1;  // of PREFIX.txt; -1: an older manifest, without text_bytes and text_crc32
  uint32_t text_crc32 = 0;  // zlib's

  InputKind inputs() const { return {.frame_width = frame_width, .sample_rate = sample_rate, .cmvn = cmvn}; }
};

class FeatureReader {
 public:
  // `prefix`: PREFIX. Reads only the manifest. Errors: NotFound if there is none; DataLoss, with the file and a remedy,
  // if it is invalid; file errors.
  static absl::StatusOr<FeatureReader> Open(const std::string& prefix);

  const FeatureManifest& manifest() const { return manifest_; }
  // Returns the paths of the manifest, of PREFIX.txt with the transcripts (`hadal prepare` reads them), of the shards.
  std::vector<std::string> Files() const;
  // Returns the next utterance, [frames, frame_width]; valid until the next call.
  // Errors: DataLoss with the file; OutOfRange after the last utterance.
  absl::StatusOr<std::span<const float>> Next();
  // Returns utterance `number`, counted from 1 over all shards; skips those before it. Errors: as Next. REQUIRES: the
  // numbers of successive calls ascend.
  absl::StatusOr<std::span<const float>> Frames(int64_t number);
  // Compares PREFIX.txt with its size and checksum, if the manifest has them.  Errors: DataLoss with the file.
  absl::Status CheckTranscripts() const;

 private:
  absl::Status OpenShard();
  absl::Status CheckHeader(const FeatureShard& shard, std::span<const std::byte> bytes) const;

  std::string prefix_, directory_;
  FeatureManifest manifest_;
  size_t next_shard_ = 0;
  int64_t read_ = 0;  // utterances
  std::string path_;  // of the mapped shard
  MappedFile file_;
  std::span<const std::byte> rest_;  // of the mapped shard
  int64_t left_ = 0;                 // utterances in it
};

// Checks all files of the features at `prefix`, in full; returns the manifest. Errors: those of FeatureReader.
absl::StatusOr<FeatureManifest> CheckFeatures(const std::string& prefix);

}  // namespace hadal
