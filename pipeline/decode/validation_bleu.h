// BLEU of validation sentences, translated with the weights of a run as they are: the validator's hook (validator.h).
//
// `sentences` samples, taken evenly from the whole corpus (files are often sorted by length), are translated by the
// run's own ranks and compared with their own targets, both turned into text by the target vocabulary (what the
// vocabulary lacks is "<unk>" on both sides). Changes no state of training.
// Every replica translates all of them, with the same result.
// Memory: the engine's decoder, in the training run's arena over what a step works in. On a device products are in the
// run's precision, by the weights that they read in training: in bf16 no fp32 master is looked at that training's
// forward does not look at.
// Threads: one a rank. Blocking: all ranks call together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/engine.h"
#include "runtime/data/bleu.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_vocabulary.h"

namespace hadal {

// What a validation's translations come to.
struct TranslatedValidation {
  std::optional<double> bleu;  // [0, 100]; none where all sentences were left out
  std::string sample;  // one of them for people to read: source, reference and hypothesis, a line each; likewise
};

class ValidationBleu {
 public:
  // Sources longer than pipeline.decoder's longest are left out; skipped() counts them.
  // `plan` and `pipeline` must outlive the object, and be the engine's.  REQUIRES: sentences ≥ 1, pipeline.decoder.
  ValidationBleu(const Corpus& corpus, CorpusVocabularies vocabularies, int64_t sentences, const ModelPlan& plan,
                 const PipelinePlan& pipeline, absl::Duration timeout);

  // The same on every rank; `update` as in Decoder::Translate. The engine is the same in every call. Each call's sample
  // is of the next sentence.
  absl::StatusOr<TranslatedValidation> operator()(Engine& engine, int64_t update);

  int64_t sentences() const { return static_cast<int64_t>(sources_.size()); }
  int64_t skipped() const { return skipped_; }
  const std::vector<std::string>& references() const { return references_; }
  // The last translations, in the order of the corpus.
  const std::vector<std::string>& hypotheses() const { return hypotheses_; }

 private:
  std::string SampleOf(size_t sentence) const;

  const ModelPlan& plan_;
  absl::Duration timeout_;
  CorpusVocabularies vocabularies_;
  std::vector<std::vector<int32_t>> sources_;
  std::vector<std::string> references_, hypotheses_;
  int64_t skipped_ = 0;
  size_t next_sample_ = 0;  // of sources_
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace hadal
