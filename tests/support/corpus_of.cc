#include "tests/support/corpus_of.h"

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/data/corpus_shard.h"
#include "tests/support/shard_bytes.h"
#include "tests/support/temporary_directory.h"

namespace hadal {

// Not by CorpusWriter, which waits for the disk.
Corpus CorpusOf(const std::vector<Sample>& samples, int32_t source_vocabulary_size, int32_t target_vocabulary_size) {
  ShardBuilder shard;
  int32_t corpora = 1;
  for (const Sample& sample : samples) {
    HADAL_CHECK(shard.Add(sample.view()).ok());
    corpora = std::max(corpora, sample.corpus_id + 1);
  }
  const int64_t count = shard.samples();
  const std::string bytes = BytesOf(shard);
  const TemporaryDirectory directory;
  SetContents(directory / "corpus.00000.shard", bytes);
  CorpusManifest manifest = {.samples = count,
                             .target_vocabulary = {.file = "vocabulary", .size = target_vocabulary_size},
                             .shards = {{.file = "corpus.00000.shard",
                                         .bytes = static_cast<int64_t>(bytes.size()),
                                         .samples = count,
                                         .crc32c = Crc32c(bytes.data(), bytes.size())}},
                             .statistics = {}};
  if (!samples.empty()) manifest.frame_width = samples[0].frame_width;
  for (int32_t c = 0; c < corpora; ++c) manifest.corpora.push_back(absl::StrCat("corpora ", c));
  if (source_vocabulary_size > 0) manifest.source_vocabulary = {.file = "vocabulary", .size = source_vocabulary_size};
  SetContents(directory / "corpus.json", ManifestToJson(manifest));
  absl::StatusOr<Corpus> corpus = Corpus::Open(directory / "corpus");
  HADAL_CHECK(corpus.ok());
  return *std::move(corpus);
}

}  // namespace hadal
