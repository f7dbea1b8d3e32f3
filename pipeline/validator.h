// The validator measures the current weights on a corpus that the model is not trained on.
//
//   nll = Σ −log p(target) / target tokens, </s> counted, natural logarithm; perplexity = exp(nll)
// over the corpus's first sentences that fit a micro-batch. They are packed once and run forward only, without dropout,
// in scratch memory of training; training's state does not change. The nll has the same bits on every rank and for
// every layout (Engine::Evaluate). If the validation set consists of several corpora (directions), the nll of each is
// reported as well; a batch has sentences of one of them. If the run translates, scores of some of the sentences follow
// (ValidationBleu). The lowest nll of a run is its best, or the highest BLEU or chrF++. The trainer decides when to
// validate.
// Threads: one per rank. Blocking: Run, which every rank calls after the same step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/engine/engine.h"
#include "pipeline/options/train_options.h"
#include "runtime/data/bleu.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/sampling_order.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// The result of a validation's translations.
struct TranslatedValidation {
  std::optional<TranslationScores> scores;  // nullopt if all sentences were left out
  // [corpora] the scores of each corpus; nullopt: none of its sentences was translated. Empty: there is only one.
  std::vector<std::optional<TranslationScores>> corpora;
  std::string sample;  // one translation to show to the user: source, reference and hypothesis, one line each; or empty
  std::string warning;  // in plain words, if the translations hardly depend on the sources; or empty
};

// ValidationBleu translates validation sentences with a run's current weights and computes BLEU, chrF++, WER and CER;
// the validator calls it (ValidatorSetup::bleu). If the validation set consists of several corpora (directions), each
// gets scores of its own as well; BLEU's tokenizer then depends on the direction's target language (BleuTokenizerOf),
// unless the config chooses another than 13a.
//
// The run's own ranks translate `sentences` samples, taken evenly from the whole corpus (files are often sorted by
// length), and compare them with their targets. The target vocabulary decodes both to text; tokens it lacks are "<unk>"
// in both. If the targets begin with language tags, so do the translations, and the tags are no part of the texts that
// are compared. The state of training does not change. Every replica translates all samples, with the same result.
// Memory: that of the engine's decoder, in the training run's arena; it overwrites the scratch of a step. On a device,
// products are in the run's precision and read the same weights (bf16 or fp32) as training's forward.
// Threads: one per rank. Blocking: all ranks call it together.
class ValidationBleu {
 public:
  // Takes `sentences` samples of the corpus. Leaves out sources that are empty or longer than
  // DecoderOptions::longest_source of `pipeline`; skipped() counts them. `timeout`: of each wait for a peer.
  // `plan` and `pipeline` are the engine's and must outlive the object. `stop`: ends a translation early (Decoder); its
  // scores then mean nothing.  REQUIRES: sentences ≥ 1, pipeline.decoder.
  ValidationBleu(const Corpus& corpus, CorpusVocabularies vocabularies, int64_t sentences, const ModelPlan& plan,
                 const PipelineLayout& pipeline, absl::Duration timeout, BleuTokenizer tokenizer = BleuTokenizer::k13a,
                 std::function<bool()> stop = {});

  // Translates and scores; the same result on every rank. `update`: see Decoder::Translate. Pass the same engine in
  // every call. TranslatedValidation::sample is another sentence in each call.
  // Errors: those of Decoder::Translate; DataLoss if the corpus changed before the constructor had copied it.
  absl::StatusOr<TranslatedValidation> operator()(Engine& engine, int64_t update);

  int64_t sentences() const { return static_cast<int64_t>(sources_.size()); }
  int64_t skipped() const { return skipped_; }
  const std::vector<std::string>& references() const { return references_; }
  // The latest translations, in the order of the corpus.
  const std::vector<std::string>& hypotheses() const { return hypotheses_; }

 private:
  std::string SampleOf(size_t sentence) const;
  // Scores the latest translations.
  TranslatedValidation Score() const;
  // Returns the warning if this is the second validation in a row whose translations are nearly all alike.
  std::string WarningOfAlike();

  const ModelPlan& plan_;
  absl::Duration timeout_;
  BleuTokenizer tokenizer_;
  std::function<bool()> stop_;
  CorpusVocabularies vocabularies_;
  std::vector<std::vector<int32_t>> sources_;
  std::vector<std::vector<float>> frames_;  // [sources] of speech, copied from the corpus
  std::vector<OutputStart> starts_;         // [sources] with the target's language tag, or nothing
  std::vector<std::string> references_, hypotheses_;
  std::vector<int32_t> corpus_ids_;        // [sources]
  std::vector<BleuTokenizer> tokenizers_;  // [corpora]; empty: there is only one
  int64_t skipped_ = 0;
  absl::Status corpus_status_;
  size_t next_sample_ = 0;  // index in sources_
  int alike_in_a_row_ = 0;  // validations whose translations are nearly all alike
  std::unique_ptr<Decoder> decoder_;
};

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
  std::function<bool()> stop_requested;              // polled on every rank during validations; may be empty
  int64_t part = 16;                                 // micro-batches between two polls, ≥ 1; the same on all ranks
  MetricsSink* sink = nullptr;  // on the rank that reports, null elsewhere; must outlive the validator
};

class Validator {
 public:
  // Errors: InvalidArgument if no sentence fits, or no token is masked.
  static absl::StatusOr<Validator> Create(const ValidatorSetup& setup);

  // Validates the weights of `engine` after `progress`.step steps. Sets progress.validation_nll and reports the outcome
  // to the sink. Adds the step to progress.best if its score is among the best, unless the update of this step was
  // skipped: no checkpoint is then saved, and the best must be in one. If the score is not better than the best one,
  // counts a validation without improvement.
  // Returns false on all ranks, having changed and reported nothing, if any rank was requested to stop. Ranks agree on
  // that after every ValidatorSetup::part micro-batches, unless nothing is left to do, and after the translations.
  // Errors: those of Communicator::Wait and of the translation; then nothing is changed or reported.
  absl::StatusOr<bool> Run(Engine& engine, TrainingProgress& progress);

  int64_t sentences() const { return identity_.samples; }
  // The identity of the sentences that are validated; independent of how they are packed.
  const DataIdentity& identity() const { return identity_; }
  // Sentences that are left out because a side does not fit a micro-batch or exceeds the longest sentence allowed.
  int64_t too_long() const { return too_long_; }

 private:
  Validator(const ValidatorSetup& setup, ValidationBatches packed);

  // Appends the sums of each batch. Returns false if any rank was requested to stop.
  absl::StatusOr<bool> Evaluate(Engine& engine, const StepScalars& scalars, std::vector<LossSums>& of_batches) const;
  absl::StatusOr<bool> Stops(Engine& engine) const;
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
  std::function<bool()> stop_requested_;
  int64_t part_;
  MetricsSink* sink_;
};

}  // namespace hadal
