// Writes a corpus (corpus.h): shards as samples arrive, and the manifest last, so that an incomplete corpus cannot be
// opened.
//
// Memory: one shard. Every file is written under another name and then renamed.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/corpus_shard.h"

namespace hadal {

struct CorpusWriterOptions {
  std::string prefix;                     // the files are PREFIX.json, PREFIX.00000.shard, …
  VocabularyReference source_vocabulary;  // files beside the manifest; empty without a source, and of speech
  VocabularyReference target_vocabulary;
  std::vector<std::string> corpora;          // [corpus id] names, for users
  bool target_tags = false;                  // CorpusManifest's
  int32_t frame_width = 0;                   // CorpusManifest's; every sample's
  std::string cmvn;                          // CorpusManifest's
  int64_t shard_bytes = int64_t{256} << 20;  // a shard ends when it reaches this size
};

class CorpusWriter {
 public:
  // Removes an existing manifest: until Finish() there is no corpus of this name.
  static absl::StatusOr<CorpusWriter> Create(CorpusWriterOptions options);

  // Errors: those of writing a file; InvalidArgument for a token id outside its vocabulary or a frame that is not
  // finite or of another width.
  absl::Status Add(const SampleView& sample);
  // Writes the last shard and the manifest, and returns the manifest. Must be called once, after all Add().
  absl::StatusOr<CorpusManifest> Finish();

 private:
  explicit CorpusWriter(CorpusWriterOptions options);
  absl::Status WriteShard();

  CorpusWriterOptions options_;
  CorpusManifest manifest_;
  ShardBuilder shard_;
};

}  // namespace hadal
