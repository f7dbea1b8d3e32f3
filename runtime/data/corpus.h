// A corpus: samples of token ids, read in place from memory-mapped files (shards) with checksums.
//
//   PREFIX.json           the manifest: counts, vocabularies, statistics, one checksum per shard (corpus_manifest.h)
//   PREFIX.00000.shard …  the samples (format: README.md)
// A sample is a sentence pair with the id of the corpus it is from, a weight, and prefix tokens before the source
// (such as language tags). In a monolingual corpus a sample has a target only. The files have no </s>; batches add it
// (packed_batch.h). A monolingual corpus may consist of blocks (TextForm::block = N). All documents, each followed by
// an end token, then form one stream of tokens, and a sample's target is N + 1 tokens of it; the last token of a
// block is the first of the next. In plain text with a mask token, tokens that continue a word carry the bit
// kContinuesWord (packed_batch.h). In a corpus of speech the source side is frames of features, and there is no
// source vocabulary.
//
// Open() verifies sizes, the CRC-32C of every shard, that every offset is inside its file, every token id inside its
// vocabulary, and every frame finite. sample() can then not read outside the mapping, whatever the file contains. The
// processes of a host can share the verification (CorpusShare); each process itself checks everything that keeps
// sample() inside the mapping.
// Limits: 2^32 - 1 samples; 2^31 - 1 tokens per side.
// If a file is changed while it is mapped, sample() stays inside the mapping, and CheckUnchanged() finds the change
// by the file's size and modification time. It does not find a change by a program that maps the file and had written
// to the same page before Open(), one within the kernel's clock tick of Open(), one to a renamed file, or one after
// which the time is set back. SamplingOrder::Next therefore checks every id that it returns. Truncating the file ends
// the process with a message (launch/signals.h). If another file replaces it (rename), the corpus still reads the old
// one.
// Thread safety: any thread may call const member functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

// One sample, in place. Valid as long as its Corpus.
struct SampleView {
  int32_t corpus_id = 0;
  float weight = 1;
  std::span<const int32_t> prefix;  // usually empty; before the source; ids of the source vocabulary
  std::span<const int32_t> source;
  std::span<const int32_t> target;
  bool has_source = true;         // false: monolingual, no source side (not even </s>)
  std::span<const float> frames;  // speech: [frames, frame_width], and `source` is empty
  int32_t frame_width = 0;        // 0: text
  TextForm form = {};
};

// One sample that owns its tokens.
struct Sample {
  int32_t corpus_id = 0;
  float weight = 1;
  std::vector<int32_t> prefix;
  std::vector<int32_t> source;
  std::vector<int32_t> target;
  std::vector<float> frames = {};  // as SampleView's
  int32_t frame_width = 0;

  SampleView view() const { return {corpus_id, weight, prefix, source, target, true, frames, frame_width}; }
};

// One process's share of the verification: the shards whose index modulo `processes` is `process`. The corpus is
// verified when all these processes have opened it without an error. REQUIRES: 0 ≤ process < processes.
struct CorpusShare {
  int process = 0;
  int processes = 1;
};

class CorpusShard;
class ShardBuilder;

class Corpus {
 public:
  // Opens PREFIX.json and its shards. Blocking: reads every byte of its share once (several GB/s from the page cache),
  // and the sample records of the other shards.
  // Errors: NotFound if there is no manifest; else DataLoss with the file, the fault and a remedy.
  static absl::StatusOr<Corpus> Open(const std::string& prefix, const CorpusShare& share = {});

  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;
  ~Corpus();

  int64_t size() const { return size_; }
  // REQUIRES: 0 ≤ i < size().
  SampleView sample(int64_t i) const;
  // Prefetches the lengths of sample(i) into the CPU's cache. REQUIRES: as sample().
  void Prefetch(int64_t i) const;
  // Returns OK if everything that was read until now came from the verified files. Blocking: a stat(2) for each shard;
  // reads a shard again if its modification time has changed. Errors: DataLoss with the file that has changed.
  absl::Status CheckUnchanged() const;
  // The file that sample(i) is in. REQUIRES: as sample().
  const std::string& PathOf(int64_t i) const;

  const CorpusManifest& manifest() const { return manifest_; }
  // Returns the full path of a vocabulary file of the manifest.
  std::string VocabularyPath(const VocabularyReference& reference) const;

 private:
  Corpus();
  // Returns the shard of sample `i`. REQUIRES: 0 ≤ i < size().
  size_t ShardOf(int64_t i) const;
  void Append(std::unique_ptr<CorpusShard> shard);

  CorpusManifest manifest_;
  std::string directory_;  // of the manifest
  std::vector<std::unique_ptr<CorpusShard>> shards_;
  std::vector<int64_t> first_sample_;  // [shards + 1]
  int64_t size_ = 0;
};

struct CorpusWriterOptions {
  std::string prefix;                     // the files are PREFIX.json, PREFIX.00000.shard, …
  VocabularyReference source_vocabulary;  // a file beside the manifest; empty for monolingual text and speech
  VocabularyReference target_vocabulary;
  int32_t mask_token = -1;                   // of the target vocabulary; −1: none
  std::vector<int32_t> special_tokens = {};  // stored in the manifest
  int32_t unknown_token = kUnknownToken;     // of the target vocabulary; −1: none
  std::vector<std::string> corpora;          // [corpus id] names
  TextForm form = {};                        // stored in the manifest; of every sample
  InputKind inputs = {};                     // stored in the manifest; its frame_width is that of every sample
  int64_t shard_bytes = int64_t{256} << 20;  // a shard ends when it reaches this size
};

// Writes a corpus: shards as samples arrive, and the manifest last, so that an incomplete corpus cannot be opened.
// Memory: one shard. Every file is written under another name and then renamed. Thread safety: one thread.
class CorpusWriter {
 public:
  // Removes an existing manifest: until Finish() there is no corpus of this name. Errors: those of files.h.
  static absl::StatusOr<CorpusWriter> Create(CorpusWriterOptions options);
  CorpusWriter(CorpusWriter&&) noexcept;
  CorpusWriter& operator=(CorpusWriter&&) noexcept;
  ~CorpusWriter();

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
  std::unique_ptr<ShardBuilder> shard_;
};

struct CorpusVocabularies {
  Vocabulary source;  // a copy of target if both sides share one, or if the corpus is monolingual
  Vocabulary target;
};

// Loads the vocabularies of a corpus from the files beside it, and compares their checksums with the corpus's.
// Errors: DataLoss if a file is missing, damaged, or not the one that the corpus was made with.
absl::StatusOr<CorpusVocabularies> LoadVocabularies(const Corpus& corpus);

}  // namespace hadal
