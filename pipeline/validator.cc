#include "pipeline/validator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "layers/chunk_part.h"
#include "runtime/clock.h"
#include "runtime/crc32c.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"
#include "runtime/trace.h"

namespace hadal {
namespace {

// Whether `nll`, of the weights after progress.step steps, is the run's best.
bool NoteNll(double nll, TrainingProgress& progress) {
  progress.validation_nll = nll;
  const bool lower = nll < progress.best_nll;
  // Among skipped steps nothing is saved (trainer.cc): the best of a run is one that a checkpoint has.
  const bool best = lower && progress.skipped_in_a_row == 0;
  if (best) {
    progress.best_nll = nll;
    progress.best_step = progress.step;
    progress.validations_without_improvement = 0;
  } else if (!lower) {
    ++progress.validations_without_improvement;
  }
  return best;
}

// Adds the batch's sentences, one by one, so that it does not matter how they are packed. Each side ends with </s>; an
// utterance's frames are counted by its source rows.
void AddTo(DataIdentity& identity, const PackedBatch& batch) {
  const auto add = [&](const auto& values, int64_t begin, int64_t end) {
    identity.crc32c =
        Crc32c(values.data() + begin, static_cast<size_t>(end - begin) * sizeof(values[0]), identity.crc32c);
  };
  for (size_t s = 0; s < batch.samples.size(); ++s) {
    add(batch.source, batch.source_offsets[s], batch.source_offsets[s + 1]);
    if (batch.frame_width > 0) {
      add(batch.frames, int64_t{batch.frame_width} * batch.frame_offsets[s],
          int64_t{batch.frame_width} * batch.frame_offsets[s + 1]);
    }
    add(batch.target, batch.target_offsets[s], batch.target_offsets[s + 1]);
  }
  identity.samples += batch.sentences();
}

}  // namespace

Validator::Validator(const ValidatorSetup& setup, ValidationBatches packed)
    : batches_(std::move(packed.batches)), too_long_(packed.too_long), bleu_(setup.bleu), sink_(setup.sink) {
  for (const PackedBatch& batch : batches_) AddTo(identity_, batch);
  if (setup.corpus.manifest().corpora.size() < 2) return;
  corpora_ = setup.corpus.manifest().corpora;
  corpus_of_batch_ = std::move(packed.corpus_ids);
}

absl::StatusOr<Validator> Validator::Create(const ValidatorSetup& setup) {
  HADAL_ASSIGN_OR_RETURN(ValidationBatches packed,
                         MakeValidationBatches(setup.corpus, setup.capacity, setup.max_sentences));
  return Validator(setup, std::move(packed));
}

std::vector<CorpusValidation> Validator::OfCorpora(const std::vector<LossSums>& of_batches,
                                                   const TranslatedValidation& translated) const {
  std::vector<LossSums> sums(corpora_.size());
  for (size_t i = 0; i < corpus_of_batch_.size(); ++i)
    sums[static_cast<size_t>(corpus_of_batch_[i])].Add(of_batches[i]);
  std::vector<CorpusValidation> result;
  for (size_t c = 0; c < corpora_.size(); ++c) {
    if (sums[c].tokens == 0) continue;
    result.push_back({.corpus = corpora_[c], .nll = sums[c].MeanNll(), .target_tokens = sums[c].tokens});
    if (c < translated.corpora.size()) result.back().scores = translated.corpora[c];
  }
  return result;
}

absl::Status Validator::Run(Engine& engine, TrainingProgress& progress) {
  const TraceScope scope(&engine.trace(), {.kind = TraceKind::kValidation});
  const Stopwatch watch;
  const StepScalars scalars{.seed = progress.seed,
                            .step = progress.step,
                            .update = std::max<int64_t>(progress.growth_update(), 1),
                            .training = false};
  std::vector<LossSums> of_batches;
  HADAL_ASSIGN_OR_RETURN(const LossSums sums, engine.Evaluate(batches_, scalars, /*row_nll=*/nullptr, &of_batches));
  const double nll = sums.MeanNll();
  const bool best = NoteNll(nll, progress);
  TranslatedValidation translated;
  if (bleu_) {
    HADAL_ASSIGN_OR_RETURN(translated, bleu_(engine, scalars.update));
  }
  if (sink_ == nullptr) return absl::OkStatus();
  sink_->OnValidation({.step = progress.step,
                       .nll = nll,
                       .perplexity = Exp(nll),
                       .scores = translated.scores,
                       .best = best,
                       .sentences = identity_.samples,
                       .seconds = watch.Seconds(),
                       .corpora = OfCorpora(of_batches, translated)});
  if (!translated.warning.empty()) sink_->OnText(progress.step, TextKind::kWarning, translated.warning);
  if (translated.scores.has_value()) sink_->OnText(progress.step, TextKind::kSample, translated.sample);
  return absl::OkStatus();
}

}  // namespace hadal
