#include "runtime/data/corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/data/corpus_shard.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// Converts `of_file`, the error of a file that the manifest names (missing, damaged or the wrong one), to a DataLoss
// error of the corpus.
absl::Status DamagedCorpus(const absl::Status& of_file, const std::string& manifest_path) {
  const bool wrong_file =
      absl::IsNotFound(of_file) || absl::IsInvalidArgument(of_file) || absl::IsFailedPrecondition(of_file);
  if (!wrong_file) return of_file;
  return DataLossError(of_file.message(), "; ", manifest_path,
                       " names this file: restore it, or run hadal prepare again");
}

}  // namespace

Corpus::Corpus() : first_sample_(1, 0) {}
Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;
Corpus::~Corpus() = default;

absl::StatusOr<Corpus> Corpus::Open(const std::string& prefix, const CorpusShare& share) {
  HADAL_CHECK_GE(share.process, 0);
  HADAL_CHECK_LT(share.process, share.processes);
  const std::string path = prefix + ".json";
  const absl::StatusOr<std::string> json = ReadFile(path, kMaxManifestBytes);
  const bool wrong = absl::IsFailedPrecondition(json.status()) || absl::IsInvalidArgument(json.status());
  if (wrong) return DataLossError(json.status().message());  // a directory, a pipe, a file too large
  HADAL_RETURN_IF_ERROR(json.status());
  Corpus corpus;
  HADAL_ASSIGN_OR_RETURN(corpus.manifest_, ManifestFromJson(*json, path));
  corpus.directory_ = DirectoryName(path);
  const CorpusManifest& manifest = corpus.manifest_;
  const ShardLimits limits = {.source_vocabulary_size = manifest.source_vocabulary.size,
                              .target_vocabulary_size = manifest.target_vocabulary.size,
                              .corpora = static_cast<int32_t>(manifest.corpora.size()),
                              .frame_width = manifest.frame_width,
                              .least_token = LeastToken(manifest.form),
                              .least_target = manifest.form.block > 0 ? 2 : 0};
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const ShardReference& reference = manifest.shards[i];
    const bool mine = static_cast<int>(i % static_cast<size_t>(share.processes)) == share.process;
    absl::StatusOr<std::unique_ptr<CorpusShard>> shard =
        CorpusShard::Open(JoinPath(corpus.directory_, reference.file), reference, limits,
                          mine ? ShardCheck::kEveryByte : ShardCheck::kRecords);
    if (!shard.ok()) return DamagedCorpus(shard.status(), path);
    corpus.Append(*std::move(shard));
  }
  return corpus;
}

void Corpus::Append(std::unique_ptr<CorpusShard> shard) {
  size_ += shard->samples();
  shards_.push_back(std::move(shard));
  first_sample_.push_back(size_);
}

size_t Corpus::ShardOf(int64_t i) const {
  HADAL_CHECK_GE(i, 0);
  HADAL_CHECK_LT(i, size_);
  const auto after = std::upper_bound(first_sample_.begin(), first_sample_.end(), i);
  return static_cast<size_t>(after - first_sample_.begin() - 1);
}

SampleView Corpus::sample(int64_t i) const {
  const size_t shard = ShardOf(i);
  SampleView sample = shards_[shard]->sample(i - first_sample_[shard]);
  sample.form = manifest_.form;
  return sample;
}

void Corpus::Prefetch(int64_t i) const {
  const size_t shard = ShardOf(i);
  shards_[shard]->Prefetch(i - first_sample_[shard]);
}

absl::Status Corpus::CheckUnchanged() const {
  for (const std::unique_ptr<CorpusShard>& shard : shards_) HADAL_RETURN_IF_ERROR(shard->CheckUnchanged());
  return absl::OkStatus();
}

const std::string& Corpus::PathOf(int64_t i) const { return shards_[ShardOf(i)]->path(); }

std::string Corpus::VocabularyPath(const VocabularyReference& reference) const {
  return JoinPath(directory_, reference.file);
}

namespace {

constexpr char kTemporaryName[] = "partial";

// Checks one side's ids and counts the unknown ones. `mark`: a bit that tokens may have besides their id.
absl::StatusOr<int64_t> CountUnknown(std::span<const int32_t> tokens, const VocabularyReference& vocabulary,
                                     const TextForm& form, int32_t unknown_token = kUnknownToken, int32_t mark = 0) {
  const int32_t least = LeastToken(form);
  int64_t unknown = 0;
  for (const int32_t marked : tokens) {
    const int32_t token = marked & ~mark;
    if (token < least || token >= vocabulary.size) {
      return InvalidArgumentError("token id ", token, " is outside the vocabulary: ids of text are ", least, " to ",
                                  vocabulary.size - 1);
    }
    unknown += token == unknown_token ? 1 : 0;
  }
  return unknown;
}

absl::Status CheckFrames(const SampleView& sample, int32_t frame_width) {
  if (sample.frame_width != frame_width) {
    return InvalidArgumentError("frames of ", sample.frame_width, " values, those of the corpus have ", frame_width);
  }
  if (frame_width > 0 && (sample.frames.empty() || sample.frames.size() % static_cast<size_t>(frame_width) != 0)) {
    return InvalidArgumentError(sample.frames.size(), " values are no frames of ", frame_width);
  }
  if (std::ranges::all_of(sample.frames, [](float value) { return std::isfinite(value); })) return absl::OkStatus();
  return InvalidArgumentError("its frames have a value that is not finite");
}

absl::Status WritePieces(std::span<const std::string_view> pieces, const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, CreateFile(path));
  for (const std::string_view piece : pieces) HADAL_RETURN_IF_ERROR(WriteAll(file, piece, path));
  HADAL_RETURN_IF_ERROR(SyncFile(file, path));
  return file.Close(path);
}

}  // namespace

CorpusWriter::CorpusWriter(CorpusWriter&&) noexcept = default;
CorpusWriter& CorpusWriter::operator=(CorpusWriter&&) noexcept = default;
CorpusWriter::~CorpusWriter() = default;

CorpusWriter::CorpusWriter(CorpusWriterOptions options)
    : options_(std::move(options)), shard_(std::make_unique<ShardBuilder>()) {
  manifest_.source_vocabulary = options_.source_vocabulary;
  manifest_.target_vocabulary = options_.target_vocabulary;
  manifest_.corpora = options_.corpora;
  manifest_.mask_token = options_.mask_token;
  manifest_.special_tokens = options_.special_tokens;
  manifest_.tags = options_.inputs.tags;
  manifest_.frame_width = options_.inputs.frame_width;
  manifest_.sample_rate = options_.inputs.sample_rate;
  manifest_.cmvn = options_.inputs.cmvn;
  manifest_.form = options_.form;
}

absl::StatusOr<CorpusWriter> CorpusWriter::Create(CorpusWriterOptions options) {
  HADAL_RETURN_IF_ERROR(RemoveTree(options.prefix + ".json"));
  return CorpusWriter(std::move(options));
}

absl::Status CorpusWriter::Add(const SampleView& sample) {
  if (manifest_.samples == std::numeric_limits<uint32_t>::max()) {
    return InvalidArgumentError("a corpus holds at most 2^32 - 1 samples; split it");
  }
  HADAL_ASSIGN_OR_RETURN(const int64_t in_prefix,
                         CountUnknown(sample.prefix, options_.source_vocabulary, options_.form));
  HADAL_ASSIGN_OR_RETURN(const int64_t in_source,
                         CountUnknown(sample.source, options_.source_vocabulary, options_.form));
  HADAL_ASSIGN_OR_RETURN(const int64_t in_target,
                         CountUnknown(sample.target, options_.target_vocabulary, options_.form, options_.unknown_token,
                                      options_.special_tokens.empty() ? 0 : kContinuesWord));
  HADAL_RETURN_IF_ERROR(CheckFrames(sample, options_.inputs.frame_width));
  HADAL_RETURN_IF_ERROR(shard_->Add(sample));
  const auto source = options_.inputs.frame_width > 0
                          ? static_cast<int64_t>(sample.frames.size()) / options_.inputs.frame_width
                          : static_cast<int64_t>(sample.prefix.size() + sample.source.size());
  const int64_t target = std::ssize(sample.target) - (options_.form.block > 0 ? 1 : 0);
  CorpusStatistics& statistics = manifest_.statistics;
  statistics.source_tokens += source;
  statistics.target_tokens += target;
  statistics.source_unknown += in_prefix + in_source;
  statistics.target_unknown += in_target;
  statistics.longest_source = std::max(statistics.longest_source, source);
  statistics.longest_target = std::max(statistics.longest_target, target);
  ++manifest_.samples;
  return shard_->bytes() >= options_.shard_bytes ? WriteShard() : absl::OkStatus();
}

absl::Status CorpusWriter::WriteShard() {
  const std::string path = absl::StrFormat("%s.%05d.shard", options_.prefix, manifest_.shards.size());
  const std::string temporary = absl::StrCat(path, ".", kTemporaryName);
  const std::array<std::string_view, 3> pieces = shard_->Pieces();
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
      {.file = BaseName(path), .bytes = shard_->bytes(), .samples = shard_->samples(), .crc32c = crc});
  shard_->Clear();
  return absl::OkStatus();
}

absl::StatusOr<CorpusManifest> CorpusWriter::Finish() {
  if (shard_->samples() > 0 || manifest_.shards.empty()) HADAL_RETURN_IF_ERROR(WriteShard());
  HADAL_RETURN_IF_ERROR(RemoveTree(absl::StrCat(options_.prefix, ".json.", kTemporaryName)));
  HADAL_RETURN_IF_ERROR(ReplaceFile(options_.prefix + ".json", ManifestToJson(manifest_), kTemporaryName));
  return manifest_;
}

namespace {

absl::StatusOr<Vocabulary> LoadOne(const Corpus& corpus, const VocabularyReference& reference) {
  const std::string path = corpus.VocabularyPath(reference);
  HADAL_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Load(path));
  if (vocabulary.crc32c() != reference.crc32c || vocabulary.size() != reference.size) {
    return FailedPreconditionError(path, " is not the vocabulary that the corpus was made with: it has ",
                                   vocabulary.size(), " ids and checksum ",
                                   absl::Hex(vocabulary.crc32c(), absl::kZeroPad8), ", the corpus expects ",
                                   reference.size, " and ", absl::Hex(reference.crc32c, absl::kZeroPad8), "");
  }
  return vocabulary;
}

}  // namespace

absl::StatusOr<CorpusVocabularies> LoadVocabularies(const Corpus& corpus) {
  const CorpusManifest& manifest = corpus.manifest();
  absl::StatusOr<Vocabulary> target = LoadOne(corpus, manifest.target_vocabulary);
  if (!target.ok()) return DamagedCorpus(target.status(), "its manifest");
  if (manifest.shares_vocabulary()) return CorpusVocabularies{*target, *target};
  absl::StatusOr<Vocabulary> source = LoadOne(corpus, manifest.source_vocabulary);
  if (!source.ok()) return DamagedCorpus(source.status(), "its manifest");
  return CorpusVocabularies{*std::move(source), *std::move(target)};
}

}  // namespace hadal
