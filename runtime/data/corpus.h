// Corpus: samples of token ids, read in place from memory-mapped, checksummed shards.
//
//   PREFIX.json           the manifest: counts, vocabularies, statistics, one checksum a shard (corpus_manifest.h)
//   PREFIX.00000.shard …  the samples (README.md has the format byte by byte)
// A sample is a sentence pair with the corpus it came from, a weight, and prefix tokens that go in front of the source
// (language tags, later); or, in a monolingual corpus, a target alone. Sides are stored without </s>; batches add it (pack_sentences.h).
//
// Open() verifies everything once: sizes, CRC-32C of every region, that every offset lies inside its file and every
// token id inside its vocabulary. After that, sample() cannot read outside the mapping, whatever the file held. The
// processes of one host can share the reading of every byte among them (CorpusShare); what keeps sample() inside the
// mapping each looks at itself. Limits: 2^32 - 1 samples; a side of at most 2^31 - 1 tokens. A file changed while it is
// mapped is not noticed; one that is cut ends the process with words (launch/signals.h).
// Thread safety: immutable after Open(); sample() may be called from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

// One sample, in place. Valid while its Corpus lives.
struct SampleView {
  int32_t corpus_id = 0;
  float weight = 1;
  std::span<const int32_t> prefix;  // usually empty; stands in front of the source, ids of the source vocabulary
  std::span<const int32_t> source;
  std::span<const int32_t> target;
  bool has_source = true;  // false: plain text, without a source side (not even </s>)
};

// One sample that owns its tokens.
struct Sample {
  int32_t corpus_id = 0;
  float weight = 1;
  std::vector<int32_t> prefix;
  std::vector<int32_t> source;
  std::vector<int32_t> target;

  SampleView view() const { return {corpus_id, weight, prefix, source, target}; }
};

// Which shards a process reads whole: of every `processes` shards the one numbered `process`. The corpus is verified when all of the
// processes have opened it without an error.  REQUIRES: 0 ≤ process < processes.
struct CorpusShare {
  int process = 0;
  int processes = 1;
};

class CorpusShard;

class Corpus {
 public:
  // Opens PREFIX.json and its shards. Blocking: reads every byte of its share once (several GB/s when in the page cache), of the other
  // shards the samples' records.
  // Errors: NotFound, or DataLoss with the file, what is wrong in it, and what to try.
  static absl::StatusOr<Corpus> Open(const std::string& prefix, const CorpusShare& share = {});

  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  ~Corpus();

  int64_t size() const { return size_; }
  // REQUIRES: 0 ≤ i < size().
  SampleView sample(int64_t i) const;
  // A hint that sample(i)'s lengths will be asked for soon.  REQUIRES: as sample().
  void Prefetch(int64_t i) const;

  const CorpusManifest& manifest() const { return manifest_; }
  // Full path of a vocabulary file of the manifest (it is stored relative to the manifest).
  std::string VocabularyPath(const VocabularyReference& reference) const;

 private:
  Corpus();
  // The shard that sample `i` is in.  REQUIRES: 0 ≤ i < size().
  size_t ShardOf(int64_t i) const;
  void Append(std::unique_ptr<CorpusShard> shard);

  CorpusManifest manifest_;
  std::string directory_;  // of the manifest
  std::vector<std::unique_ptr<CorpusShard>> shards_;
  std::vector<int64_t> first_sample_;  // [shards + 1]
  int64_t size_ = 0;
};

}  // namespace hadal
