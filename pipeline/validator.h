// The validator measures the current weights on a corpus that the model is not trained on.
//
//   nll = Σ −log p(target) / target tokens, </s> counted, natural logarithm; perplexity = exp(nll)
// over the corpus's first sentences that fit a micro-batch. They are packed once and run forward only, without dropout,
// in scratch memory of training; training's state does not change. The nll has the same bits on every rank and for
// every layout (Engine::Evaluate). If the validation set consists of several corpora (directions), the nll of each is
// reported as well; a batch has sentences of one of them. If the run translates, scores of some of the sentences follow
// (validation_bleu.h). The lowest nll of a run is its best, or the highest BLEU or chrF++. The trainer decides when to
// validate.
// Threads: one per rank. Blocking: Run, which every rank calls after the same step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/engine/engine.h"
#include "pipeline/options/train_options.h"
#include "pipeline/validation_bleu.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/sampling_order.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// Translates validation sentences with the engine's weights; the same on every rank.
using TranslateValidation = std::function<absl::StatusOr<TranslatedValidation>(Engine&, int64_t update)>;

struct ValidatorSetup {
  const Corpus& corpus;                              // read only by Create
  BatchCapacity capacity;                            // of a micro-batch: training's
  int64_t max_sentences = 0;                         // 0: all that fit
  std::optional<TokenMasking> masking;               // for an encoder alone: the nll is of masked tokens
  TranslateValidation bleu;                          // may be empty: no BLEU
  ValidationMetric metric = ValidationMetric::kNll;  // the others need `bleu`
  int32_t keep_best = 1;                             // the most steps that progress.best lists
  MetricsSink* sink = nullptr;  // on the rank that reports, null elsewhere; must outlive the validator
};

class Validator {
 public:
  // Errors: InvalidArgument if no sentence fits.
  static absl::StatusOr<Validator> Create(const ValidatorSetup& setup);

  // Validates the weights of `engine` after `progress`.step steps. Sets progress.validation_nll and reports the outcome
  // to the sink. Adds the step to progress.best if its score is among the best, unless the update of this step was
  // skipped: no checkpoint is then saved, and the best must be in one. If the score is not better than the best one,
  // counts a validation without improvement.
  // Errors: those of Communicator::Wait and of the translation; then `progress` may be written in part, and nothing is
  // reported.
  absl::Status Run(Engine& engine, TrainingProgress& progress);

  int64_t sentences() const { return identity_.samples; }
  // The identity of the sentences that are validated; independent of how they are packed.
  const DataIdentity& identity() const { return identity_; }
  // Sentences that are left out because a side does not fit a micro-batch or exceeds the longest sentence allowed.
  int64_t too_long() const { return too_long_; }

 private:
  Validator(const ValidatorSetup& setup, ValidationBatches packed);

  // Returns whether `score`, of the weights after progress.step steps, is the run's best.
  bool Note(double score, TrainingProgress& progress) const;
  // The results of each corpus, if there are several.
  std::vector<CorpusValidation> OfCorpora(const std::vector<LossSums>& of_batches,
                                          const TranslatedValidation& translated) const;

  std::vector<PackedBatch> batches_;
  std::vector<std::string> corpora_;      // names; empty: there is only one
  std::vector<int32_t> corpus_of_batch_;  // [batches], if there are several
  DataIdentity identity_;
  int64_t too_long_ = 0;
  TranslateValidation bleu_;
  ValidationMetric metric_;
  int32_t keep_best_;
  MetricsSink* sink_;
};

}  // namespace hadal
