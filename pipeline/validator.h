// A run's validations: how likely the model, with its weights as they are, holds the sentences of a corpus it is not
// trained on.
//
//   nll = Σ −log p(target) / target tokens, </s> counted, natural logarithm; perplexity = exp(nll)
// over the corpus's first sentences that fit a micro-batch, packed once, forward only and without dropout, in
// training's buffers: no bit of training changes. The same on every rank and for every layout (Engine::Evaluate). The
// lowest nll of a run is its best. Where a run translates, BLEU of some of the sentences follows
// (decode/validation_bleu.h). When to validate is the trainer's question.
// Threads: one a rank. Blocking: Run, which every rank calls after the same step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/decode/validation_bleu.h"
#include "pipeline/engine.h"
#include "runtime/data/corpus.h"
#include "runtime/data/pack_sentences.h"
#include "runtime/data/packed_batch.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// Translates validation sentences with the engine's weights; the same on every rank.
using TranslateValidation = std::function<absl::StatusOr<TranslatedValidation>(Engine&, int64_t update)>;

struct ValidatorSetup {
  const Corpus& corpus;         // read by Create alone
  BatchCapacity capacity;       // of a micro-batch: training's
  int64_t max_sentences = 0;    // the first that fit; 0: all
  TranslateValidation bleu;     // may be empty: no BLEU
  MetricsSink* sink = nullptr;  // of the rank that reports, which outlives the validator; null elsewhere
};

class Validator {
 public:
  // Errors: InvalidArgument where no sentence fits.
  static absl::StatusOr<Validator> Create(const ValidatorSetup& setup);

  // Validates the weights that `engine` holds after `progress`.step steps, notes the outcome in `progress`
  // (validation_nll; best_nll and best_step, or one more validation without improvement), and tells the sink.
  // Errors: those of transfers and of the translation; then `progress` may be noted in part, and nothing is told.
  absl::Status Run(Engine& engine, TrainingProgress& progress);

  int64_t sentences() const { return sentences_; }
  // Sentences of the corpus that are left out because a side is longer than a micro-batch or than sentences may be.
  int64_t too_long() const { return too_long_; }

 private:
  Validator(const ValidatorSetup& setup, std::vector<PackedBatch> batches, int64_t too_long);

  std::vector<PackedBatch> batches_;
  int64_t sentences_ = 0;
  int64_t too_long_ = 0;
  TranslateValidation bleu_;
  MetricsSink* sink_;
};

}  // namespace hadal
