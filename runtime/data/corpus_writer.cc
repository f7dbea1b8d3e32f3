#include "runtime/data/corpus_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/crc32c.h"
#include "runtime/data/packed_batch.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr char kTemporaryName[] = "partial";

// Checks one side's ids and counts the unknown ones.
absl::StatusOr<int64_t> CountUnknown(std::span<const int32_t> tokens, const VocabularyReference& vocabulary) {
  int64_t unknown = 0;
  for (const int32_t token : tokens) {
    if (token < kUnknownToken || token >= vocabulary.size) {
      return absl::InvalidArgumentError(absl::StrCat("token id ", token, " is outside the vocabulary: ids of text are ",
                                                     kUnknownToken, " to ", vocabulary.size - 1));
    }
    unknown += token == kUnknownToken ? 1 : 0;
  }
  return unknown;
}

absl::Status CheckFrames(const SampleView& sample, int32_t frame_width) {
  if (sample.frame_width != frame_width) {
    return absl::InvalidArgumentError(
        absl::StrCat("frames of ", sample.frame_width, " values, those of the corpus have ", frame_width));
  }
  if (frame_width > 0 && (sample.frames.empty() || sample.frames.size() % static_cast<size_t>(frame_width) != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(sample.frames.size(), " values are no frames of ", frame_width));
  }
  if (std::ranges::all_of(sample.frames, [](float value) { return std::isfinite(value); })) return absl::OkStatus();
  return absl::InvalidArgumentError("its frames have a value that is not finite");
}

absl::Status WritePieces(std::span<const std::string_view> pieces, const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, CreateFile(path));
  for (const std::string_view piece : pieces) HADAL_RETURN_IF_ERROR(WriteAll(file, piece, path));
  HADAL_RETURN_IF_ERROR(SyncFile(file, path));
  return file.Close(path);
}

}  // namespace

CorpusWriter::CorpusWriter(CorpusWriterOptions options) : options_(std::move(options)) {
  manifest_.source_vocabulary = options_.source_vocabulary;
  manifest_.target_vocabulary = options_.target_vocabulary;
  manifest_.corpora = options_.corpora;
  manifest_.target_tags = options_.target_tags;
  manifest_.frame_width = options_.frame_width;
  manifest_.cmvn = options_.cmvn;
}

absl::StatusOr<CorpusWriter> CorpusWriter::Create(CorpusWriterOptions options) {
  HADAL_RETURN_IF_ERROR(RemoveTree(options.prefix + ".json"));
  return CorpusWriter(std::move(options));
}

absl::Status CorpusWriter::Add(const SampleView& sample) {
  if (manifest_.samples == std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError("a corpus holds at most 2^32 - 1 samples; split it");
  }
  HADAL_ASSIGN_OR_RETURN(const int64_t in_prefix, CountUnknown(sample.prefix, options_.source_vocabulary));
  HADAL_ASSIGN_OR_RETURN(const int64_t in_source, CountUnknown(sample.source, options_.source_vocabulary));
  HADAL_ASSIGN_OR_RETURN(const int64_t in_target, CountUnknown(sample.target, options_.target_vocabulary));
  HADAL_RETURN_IF_ERROR(CheckFrames(sample, options_.frame_width));
  HADAL_RETURN_IF_ERROR(shard_.Add(sample));
  const auto source = options_.frame_width > 0 ? static_cast<int64_t>(sample.frames.size()) / options_.frame_width
                                               : static_cast<int64_t>(sample.prefix.size() + sample.source.size());
  const auto target = static_cast<int64_t>(sample.target.size());
  CorpusStatistics& statistics = manifest_.statistics;
  statistics.source_tokens += source;
  statistics.target_tokens += target;
  statistics.source_unknown += in_prefix + in_source;
  statistics.target_unknown += in_target;
  statistics.longest_source = std::max(statistics.longest_source, source);
  statistics.longest_target = std::max(statistics.longest_target, target);
  ++manifest_.samples;
  return shard_.bytes() >= options_.shard_bytes ? WriteShard() : absl::OkStatus();
}

absl::Status CorpusWriter::WriteShard() {
  const std::string path = absl::StrFormat("%s.%05d.shard", options_.prefix, manifest_.shards.size());
  const std::string temporary = absl::StrCat(path, ".", kTemporaryName);
  const std::array<std::string_view, 3> pieces = shard_.Pieces();
  HADAL_RETURN_IF_ERROR(RemoveTree(temporary));  // left by a run that was interrupted
  if (absl::Status status = WritePieces(pieces, temporary); !status.ok()) {
    RemoveTree(temporary).IgnoreError();
    return status;
  }
  HADAL_RETURN_IF_ERROR(RenamePath(temporary, path));
  HADAL_RETURN_IF_ERROR(SyncDirectory(DirectoryName(path)));
  uint32_t crc = 0;
  for (const std::string_view piece : pieces) crc = Crc32c(piece.data(), piece.size(), crc);
  manifest_.shards.push_back(
      {.file = BaseName(path), .bytes = shard_.bytes(), .samples = shard_.samples(), .crc32c = crc});
  shard_.Clear();
  return absl::OkStatus();
}

absl::StatusOr<CorpusManifest> CorpusWriter::Finish() {
  if (shard_.samples() > 0 || manifest_.shards.empty()) HADAL_RETURN_IF_ERROR(WriteShard());
  HADAL_RETURN_IF_ERROR(RemoveTree(absl::StrCat(options_.prefix, ".json.", kTemporaryName)));
  HADAL_RETURN_IF_ERROR(ReplaceFile(options_.prefix + ".json", ManifestToJson(manifest_), kTemporaryName));
  return manifest_;
}

}  // namespace hadal
