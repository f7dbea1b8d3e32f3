// The order of training samples: a function of (corpus, seed, capacity, M, temperatures) and the step, where M is the
// number of micro-batches per step. A checkpoint therefore stores only the step.
//
//   passes(c)            = samples of corpus c that fit, again and again, each pass shuffled anew: Fisher-Yates from
//                          Philox(key = seed; site kSampling, stream = pass, step = name of c)
//   quota(c, epoch)      = N·p_c, rounded by largest remainders so that the quotas' sum is N, the number of all samples
//                          that fit; p_c = n_c^(1/T) / Σ n^(1/T), n_c: samples of c that fit, T: the epoch's
//                          temperature. With T = 1 it is n_c: every sample that fits is used once per epoch.
//   order(epoch)         = from passes(c), the quota(c, epoch) samples after those of the earlier epochs, for every c;
//                          merged in a random order that keeps the order within each c
//   micro-batches(epoch) = order(epoch), packed greedily: a sentence joins while source and target rows fit; the last
//                          may be short
//   stream               = micro-batches(0), micro-batches(1), …
//   step s               = micro-batches [s·M, (s + 1)·M) of the stream, numbered 0 … M - 1
// c is one of the manifest's corpora. The order within c depends on its name, so adding a corpus changes the quotas
// only. Weights of samples do not change the order. Source of p_c: Arivazhagan et al. 2019 (1907.05019), fairseq's
// --sampling-method temperature.
// Cost: the next step costs only the copying. Entering an epoch costs a shuffle of each pass that it touches and one
// look at the lengths. A seek enters every epoch between its target and the last earlier epoch whose start is known:
// epoch 0, those entered before, and the one passed to Continue(). Memory: 8 bytes per sample, and 24 bytes per
// micro-batch of an epoch.
// Thread safety: none; use one object per thread (equal objects return equal batches). The corpus must outlive the
// object. A corpus that somebody changes meanwhile is an error, never a batch (corpus.h says which changes are found).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/spec_augment.h"

namespace hadal {

// The start of an epoch in the sequence of micro-batches.
//
// Stored in checkpoints: the number of micro-batches of an epoch is known only after shuffling and packing it, so a run
// resumed in epoch 300 would otherwise shuffle and pack 300 epochs before its first step.
// Thread safety: plain values.
struct EpochPosition {
  uint32_t order = 0;       // identifies the order: a checksum of the samples' lengths, the seed and the capacity
  int64_t epoch = 0;        // from 0
  int64_t micro_batch = 0;  // the epoch's first micro-batch
  bool operator==(const EpochPosition&) const = default;
};

struct SamplingOptions {
  uint64_t seed = 1;
  BatchCapacity capacity;              // of one micro-batch
  int32_t micro_batches_per_step = 1;  // M
  std::vector<double> temperatures;    // T of epoch 0, 1, …; the last one also for all later epochs; empty: 1
  SpecAugment spec_augment;            // for speech: masks every sentence's frames; `step` counts from 0
};

struct StepBatches {
  std::vector<PackedBatch> micro_batches;  // [M], micro_batch = 0 … M - 1
  int64_t source_tokens = 0;               // rows of the step, including </s>
  int64_t target_tokens = 0;               // rows of the step, including </s>; the loss is scaled by this number
  double epochs_done = 0;                  // after the step: whole epochs + fraction of the current one's samples
};

class SamplingOrder {
 public:
  // Errors: InvalidArgument if no sample fits the capacities (with the shortest sample's rows), M < 1, a temperature
  // is below 1e-3 or not finite, or the corpus is text and has no frames to mask.
  static absl::StatusOr<SamplingOrder> Create(const Corpus& corpus, const SamplingOptions& options);

  // Writes the step's micro-batches to `out`, reusing its memory. Checks afterwards that the corpus is as it was
  // opened, and that sizes and token ids are those that the model is made for. REQUIRES: step ≥ 0. Blocking: a stat(2)
  // for each shard.  Errors: DataLoss with the corpus's file.
  absl::Status At(int64_t step, StepBatches& out);
  // Returns the step's micro-batches. REQUIRES: nobody changes the corpus.
  StepBatches At(int64_t step);

  // The epoch of the last micro-batch returned; epoch 0 at first.
  EpochPosition current_epoch() const;
  // Lets later seeks begin at `start`, a result of current_epoch() of an equal order. Ignores `start` and returns false
  // if it is from another order (another corpus, seed or capacity).
  bool Continue(const EpochPosition& start);
  // The number of epochs shuffled and packed so far: the cost of seeks.
  int64_t epochs_entered() const { return epochs_entered_; }

  // The number of samples that fit, and of samples that are never used because a side is longer than its capacity or
  // than the limit on sentences.
  int64_t samples() const { return corpus_->size() - too_long_; }
  int64_t too_long() const { return too_long_; }

 private:
  struct Batch {
    std::span<const uint32_t> samples;
    BatchRows rows;
  };

  SamplingOrder(const Corpus& corpus, const SamplingOptions& options) : corpus_(&corpus), options_(options) {}
  // Reads every sample's length once.  Errors: DataLoss if a corpus id is no longer one.
  absl::Status Survey();
  // Makes the epoch of micro-batch `index` of the stream the current one.
  void Seek(int64_t index);
  void EnterEpoch(int64_t epoch, int64_t first_micro_batch);
  // Returns samples [begin, begin + count) of passes(c).
  std::vector<uint32_t> FromPasses(size_t corpora, int64_t begin, int64_t count) const;
  // Fills order_ for epoch_.
  void Order();
  void Pack();
  // Returns micro-batch `index` of the stream; valid until the next call.
  Batch BatchAt(int64_t index);
  // Copies a batch from the corpus. Errors: DataLoss if it is not what was packed.
  absl::Status Copy(const Batch& chosen, PackedBatch& batch) const;
  void Augment(int64_t step, PackedBatch& batch) const;
  // Epochs done after micro-batch `index`. REQUIRES: it is in the current epoch.
  double EpochsDone(int64_t index) const;

  const Corpus* corpus_;
  SamplingOptions options_;
  uint32_t name_ = 0;  // EpochPosition::order
  int64_t too_long_ = 0;
  std::vector<std::vector<uint32_t>> fitting_;          // [corpora] samples that fit, ascending
  std::map<int64_t, int64_t> known_starts_ = {{0, 0}};  // first micro-batch of an epoch → the epoch
  int64_t epochs_entered_ = 0;

  int64_t epoch_ = -1;                 // the current epoch; -1: none yet
  int64_t epoch_begin_ = 0;            // its first micro-batch
  std::vector<uint32_t> order_;        // its samples, in their order
  std::vector<int64_t> batch_begin_;   // [micro-batches + 1] indices into order_
  std::vector<BatchRows> batch_rows_;  // [micro-batches]
};

// Returns quota(c, epoch) of `samples`, [corpora] n_c, at temperature `temperature`. REQUIRES: temperature > 0.
std::vector<int64_t> SamplingQuotas(const std::vector<int64_t>& samples, double temperature);

// The samples of a corpus that are used for validation: indices in the corpus, ascending.
struct ValidationSamples {
  std::vector<int64_t> samples;
  int64_t too_long = 0;  // omitted because a side is longer than its capacity
};

// Returns the first `max_sentences` samples that fit (0: all) of each of the manifest's corpora, in the corpus's order.
// Errors: InvalidArgument if no sample fits; DataLoss with the corpus's file if somebody has changed it.
absl::StatusOr<ValidationSamples> ChooseValidationSamples(const Corpus& corpus, const BatchCapacity& capacity,
                                                          int64_t max_sentences);

// Validation samples in batches.
struct ValidationBatches {
  std::vector<PackedBatch> batches;  // micro_batch counts from 0
  std::vector<int32_t> corpus_ids;   // [batches] index of the manifest's corpora
  int64_t target_tokens = 0;         // rows, including </s>
  int64_t too_long = 0;              // as in ValidationSamples
};

// Packs the samples of ChooseValidationSamples in order; a batch has samples of one of the manifest's corpora. Errors:
// as above; DataLoss also if a file is changed meanwhile.
absl::StatusOr<ValidationBatches> MakeValidationBatches(const Corpus& corpus, const BatchCapacity& capacity,
                                                        int64_t max_sentences);

// Whether tokens that were copied from a corpus are ids of its vocabularies; </s> may be among them.
bool AreIdsOf(const CorpusManifest& manifest, std::span<const int32_t> source, std::span<const int32_t> target);
// The error of a corpus that has changed since it was opened, where `sample` shows it.
absl::Status CorpusChanged(const Corpus& corpus, int64_t sample);

}  // namespace hadal
