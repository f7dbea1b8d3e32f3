#include "runtime/data/corpus.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/data/corpus_shard.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

}  // namespace

Corpus::Corpus() : first_sample_(1, 0) {}
Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;
Corpus::~Corpus() = default;

absl::Status DamagedCorpus(const absl::Status& of_file, const std::string& manifest_path) {
  const bool wrong_file =
      absl::IsNotFound(of_file) || absl::IsInvalidArgument(of_file) || absl::IsFailedPrecondition(of_file);
  if (!wrong_file) return of_file;
  return absl::DataLossError(
      absl::StrCat(of_file.message(), "; ", manifest_path, " names this file: restore it, or run hadal prepare again"));
}

absl::StatusOr<Corpus> Corpus::Open(const std::string& prefix, const CorpusShare& share) {
  HADAL_CHECK_GE(share.process, 0);
  HADAL_CHECK_LT(share.process, share.processes);
  const std::string path = prefix + ".json";
  const absl::StatusOr<std::string> json = ReadFile(path, kMaxManifestBytes);
  const bool wrong = absl::IsFailedPrecondition(json.status()) || absl::IsInvalidArgument(json.status());
  if (wrong) return absl::DataLossError(json.status().message());  // a directory, a pipe, a file too large
  HADAL_RETURN_IF_ERROR(json.status());
  Corpus corpus;
  HADAL_ASSIGN_OR_RETURN(corpus.manifest_, ManifestFromJson(*json, path));
  corpus.directory_ = DirectoryName(path);
  const CorpusManifest& manifest = corpus.manifest_;
  const ShardLimits limits = {.source_vocabulary_size = manifest.source_vocabulary.size,
                              .target_vocabulary_size = manifest.target_vocabulary.size,
                              .corpora = static_cast<int32_t>(manifest.corpora.size()),
                              .frame_width = manifest.frame_width};
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
  return shards_[shard]->sample(i - first_sample_[shard]);
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

}  // namespace hadal
