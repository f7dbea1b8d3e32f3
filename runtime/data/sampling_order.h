// The order of training samples: a function of (corpus, seed, capacity, M, temperatures), where M is the number of
// micro-batches per step. A place in the order (DataPlace) counts samples, not batches. So seed, capacity, M and
// temperatures may change when a run resumes, and no sample is left out or read twice in a pass.
//
//   passes(c)            = samples of corpus c that fit, again and again, each pass shuffled anew: Fisher-Yates from
//                          Philox (RandomCounter: seed, site kSampling, micro_batch = pass, step = CRC of c's name)
//   quota(c, epoch)      = N·p_c, rounded by largest remainders so that the quotas' sum is N, the number of all samples
//                          that fit; p_c = n_c^(1/T) / Σ n^(1/T), n_c: samples of c that fit, T: the epoch's
//                          temperature. With T = 1 it is n_c: every sample that fits is used once per epoch.
//   order(epoch)         = from passes(c), the quota(c, epoch) samples after those of the earlier epochs, for every c;
//                          merged in a random order that keeps the order within each c
//   micro-batches(epoch) = order(epoch), packed greedily: a sentence joins while source and target rows fit; the last
//                          may be short
//   step                 = the next M micro-batches, which may be of several epochs, numbered 0 … M - 1
// c is one of the manifest's corpora, which have names. Adding a corpus changes the quotas, not the order within the
// others. Weights of samples do not change the order. Source of p_c: Arivazhagan et al. 2019 (1907.05019), fairseq's
// --sampling-method temperature.
//
// If a run resumes with other options, the current epoch keeps the order with which it began, and a pass its seed and
// its capacity. Micro-batches from the place on are packed anew. Samples that no longer fit are passed over; those that
// fit only now are read from the next pass on; another temperature applies from the next epoch on.
//
// Cost: the next step costs only the copying. Entering an epoch costs a shuffle of each pass that it touches and one
// look at the lengths. Memory: 8 bytes per sample, and 24 bytes per micro-batch of an epoch.
// Thread safety: none; use one object per thread (equal objects return equal batches). The corpus must outlive the
// object. A corpus that changes meanwhile is an error, never a batch (corpus.h says which changes are found).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/input_masks.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// How a pass is made: of the samples that fit `capacity`, shuffled by `seed`.
struct Shuffling {
  uint64_t seed = 0;
  BatchCapacity capacity;
  bool operator==(const Shuffling&) const = default;
};

// Where an epoch begins in the passes over one of the manifest's corpora.
struct TextPlace {
  Shuffling shuffling;  // of the pass
  int64_t pass = 0;     // from 0
  int64_t read = 0;     // samples of the pass before the epoch
  int64_t quota = 0;    // samples in the epoch
  bool operator==(const TextPlace&) const = default;
};

// A place in the order, stored in checkpoints. Thread safety: plain values.
struct DataPlace {
  int64_t epoch = 0;             // from 0
  int64_t read = 0;              // samples of the epoch that were read or passed over
  Shuffling shuffling;           // of the passes that begin in the epoch
  std::vector<TextPlace> texts;  // [corpora]; empty: the beginning of epoch 0
  bool operator==(const DataPlace&) const = default;
};

struct SamplingOptions {
  uint64_t seed = 1;
  BatchCapacity capacity;               // of one micro-batch
  int32_t micro_batches_per_step = 1;   // M
  std::vector<double> temperatures;     // T of epoch 0, 1, …; the last one also for all later epochs; empty: 1
  SpecAugment spec_augment;             // for speech: masks in every sentence's frames
  std::optional<TokenMasking> masking;  // for an encoder alone: batches have masked tokens
};

struct StepBatches {
  std::vector<PackedBatch> micro_batches;  // [M], micro_batch = 0 … M - 1
  int64_t source_tokens = 0;               // source rows of the step, </s> included
  int64_t target_tokens = 0;               // target rows of the step; the loss is divided by this number
  double epochs_done = 0;                  // after the step: whole epochs + fraction of the current one's samples
};

class SamplingOrder {
 public:
  // Errors: InvalidArgument if no sample fits the capacities (the message has the shortest sample's rows), if M < 1,
  // if a temperature is below 1e-3 or not finite, or if spec_augment is set for a corpus of text; DataLoss if the
  // corpus has changed.
  static absl::StatusOr<SamplingOrder> Create(const Corpus& corpus, const SamplingOptions& options);

  // Writes the micro-batches after place() to `out`, reusing its memory, and moves the place behind them. Checks that
  // the corpus's files are unchanged since it was opened, that samples have the lengths with which they were packed,
  // and that token ids are of the vocabularies. `step`, from 0, only selects the masks of speech. Blocking: a stat(2)
  // for each shard. Errors: DataLoss with the corpus's file.
  absl::Status Next(int64_t step, StepBatches& out);

  const DataPlace& place() const { return place_; }
  // Continues at `place`, a result of place() of an order of the same corpus with any options.
  // Errors: DataLoss if it is no place in this corpus.
  absl::Status Continue(const DataPlace& place);
  // Moves the place by `count` micro-batches. Cost: that of entering every epoch on the way. REQUIRES: count ≥ 0.
  void Skip(int64_t count);
  // The number of epochs shuffled and packed so far.
  int64_t epochs_entered() const { return epochs_entered_; }

  // The number of samples that fit.
  int64_t samples() const { return corpus_->size() - too_long_; }
  // The number of samples that are never used: a side is longer than its capacity or than the limit on sentences.
  int64_t too_long() const { return too_long_; }

 private:
  using Fitting = std::vector<std::vector<uint32_t>>;  // [corpora] samples that fit, ascending

  SamplingOrder(const Corpus& corpus, const SamplingOptions& options) : corpus_(&corpus), options_(options) {}
  // Reads every sample's length once.  Errors: DataLoss if a corpus id is no longer one.
  absl::Status Survey();
  const Fitting& FittingOf(const BatchCapacity& capacity);
  Shuffling PresentShuffling() const { return {options_.seed, options_.capacity}; }
  // Sets the quotas of place.epoch by the present options.
  void SetQuotas(DataPlace& place);
  absl::Status CheckPlace(const DataPlace& place);
  // Orders and packs the rest of the epoch of place_, unless that is done.
  void Enter();
  void EnterNextEpoch();
  // Returns the next `count` samples of passes(c) from `at` on, and moves `at` behind them. `corpora`: c.
  std::vector<uint32_t> Take(size_t corpora, int64_t count, TextPlace& at);
  // Fills order_ and next_texts_ for the epoch of place_.
  void Order();
  void Pack();
  // Whether all samples of the epoch's order fit: its capacity is the present one.
  bool AllFit() const { return place_.shuffling.capacity == options_.capacity; }
  // Copies batch `index` of the epoch from the corpus. Errors: DataLoss if it is not what was packed.
  absl::Status Copy(size_t index, PackedBatch& batch) const;
  void Augment(int64_t step, PackedBatch& batch) const;

  const Corpus* corpus_;
  SamplingOptions options_;
  int64_t too_long_ = 0;
  std::deque<std::pair<BatchCapacity, Fitting>> fitting_;  // the present capacity's first
  int64_t epochs_entered_ = 0;

  DataPlace place_;
  bool entered_ = false;               // whether what follows is of place_.epoch
  std::vector<TextPlace> next_texts_;  // where the next epoch begins
  std::vector<uint32_t> order_;        // its samples, in their order
  std::vector<int64_t> batch_begin_;   // [micro-batches + 1] indices into order_
  std::vector<BatchRows> batch_rows_;  // [micro-batches]
  size_t next_batch_ = 0;              // place_.read is batch_begin_[next_batch_]
};

// Returns quota(c, epoch) of `samples`, [corpora] n_c, at temperature `temperature`. REQUIRES: temperature > 0.
std::vector<int64_t> SamplingQuotas(const std::vector<int64_t>& samples, double temperature);

// The samples of a corpus that are used for validation: indices in the corpus, ascending.
struct ValidationSamples {
  std::vector<int64_t> samples;
  int64_t too_long = 0;  // omitted because a side is longer than its capacity
};

// Returns the first `max_sentences` samples that fit (0: all) of each of the manifest's corpora, in the corpus's order.
// Errors: InvalidArgument if no sample fits; DataLoss with the corpus's file if it has changed.
absl::StatusOr<ValidationSamples> ChooseValidationSamples(const Corpus& corpus, const BatchCapacity& capacity,
                                                          int64_t max_sentences);

// Validation samples in batches.
struct ValidationBatches {
  std::vector<PackedBatch> batches;  // micro_batch counts from 0
  std::vector<int32_t> corpus_ids;   // [batches] index into the manifest's corpora
  int64_t target_tokens = 0;         // target rows
  int64_t too_long = 0;              // as in ValidationSamples
};

// Packs the samples of ChooseValidationSamples in order; a batch has samples of one of the manifest's corpora.
// `masking`: for an encoder alone. Errors: as ChooseValidationSamples; DataLoss also if a file is changed meanwhile.
absl::StatusOr<ValidationBatches> MakeValidationBatches(const Corpus& corpus, const BatchCapacity& capacity,
                                                        int64_t max_sentences,
                                                        const std::optional<TokenMasking>& masking = {});

// Whether tokens that were copied from a corpus are ids of its vocabularies; </s> may be among them.
bool AreIdsOf(const CorpusManifest& manifest, std::span<const int32_t> source, std::span<const int32_t> target);
// Returns the error for a corpus that has changed since it was opened. `sample`: the index of a sample that has
// changed.
absl::Status CorpusChanged(const Corpus& corpus, int64_t sample);

}  // namespace hadal
