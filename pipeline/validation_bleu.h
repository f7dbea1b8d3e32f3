// BLEU of validation sentences, translated with the weights of a run as they are: the trainer's hook (trainer.h).
//
// The first `sentences` samples of the corpus are translated by the run's own ranks and compared with their own targets, both
// turned into text by the target vocabulary (what the vocabulary lacks is "<unk>" on both sides). Changes no state of training.
// Every replica translates all of them, with the same result.
// Memory: the engine's decoder, a part of the training run's arena. On a device products are in the run's precision, by the weights that they read
// in training: in bf16 no fp32 master is looked at that training's forward does not look at.
// Threads: one a rank. Blocking: all ranks call together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/decoder.h"
#include "pipeline/engine.h"
#include "runtime/data/bleu.h"
#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

class ValidationBleu {
 public:
  // `sentences`: 0 means all. Sources longer than pipeline.decoder's longest are left out; skipped() counts them.
  // `plan` and `pipeline` must outlive the object, and be the engine's.  REQUIRES: pipeline.decoder.
  ValidationBleu(const Corpus& corpus, const Vocabulary& target, int64_t sentences, const ModelPlan& plan,
                 const PipelinePlan& pipeline, absl::Duration timeout);

  // BLEU in [0, 100] on every rank; `update` as in Decoder::Translate. The engine is the same in every call.
  absl::StatusOr<double> operator()(Engine& engine, int64_t update);

  int64_t sentences() const { return static_cast<int64_t>(sources_.size()); }
  int64_t skipped() const { return skipped_; }
  // The last translations, in the order of the corpus (for samples in a log), and what they were compared with.
  const std::vector<std::string>& hypotheses() const { return hypotheses_; }
  const std::vector<std::string>& references() const { return references_; }

 private:
  const ModelPlan& plan_;
  absl::Duration timeout_;
  Vocabulary target_;
  std::vector<std::vector<int32_t>> sources_;
  std::vector<std::string> references_, hypotheses_;
  int64_t skipped_ = 0;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace hadal
