#include "pipeline/validator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "layers/chunk_part.h"
#include "runtime/clock.h"
#include "runtime/crc32c.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"
#include "runtime/trace.h"

namespace hadal {
namespace {

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
    : batches_(std::move(packed.batches)),
      too_long_(packed.too_long),
      bleu_(setup.bleu),
      metric_(setup.metric),
      keep_best_(setup.keep_best),
      sink_(setup.sink) {
  for (const PackedBatch& batch : batches_) AddTo(identity_, batch);
  if (setup.corpus.manifest().corpora.size() < 2) return;
  corpora_ = setup.corpus.manifest().corpora;
  corpus_of_batch_ = std::move(packed.corpus_ids);
}

absl::StatusOr<Validator> Validator::Create(const ValidatorSetup& setup) {
  HADAL_ASSIGN_OR_RETURN(ValidationBatches packed,
                         MakeValidationBatches(setup.corpus, setup.capacity, setup.max_sentences, setup.masking));
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

bool Validator::Note(double score, TrainingProgress& progress) const {
  const auto better = [this](double a, double b) { return metric_ == ValidationMetric::kNll ? a < b : a > b; };
  std::vector<ScoredStep>& best = progress.best;
  const bool improved = std::isfinite(score) && (best.empty() || better(score, best.front().score));
  if (!improved) ++progress.validations_without_improvement;
  // Among skipped steps nothing is saved (trainer.cc): the best of a run are what checkpoints have.
  if (!std::isfinite(score) || progress.skipped_in_a_row > 0) return false;
  if (improved) progress.validations_without_improvement = 0;
  const auto place = std::ranges::find_if(best, [&](const ScoredStep& scored) { return better(score, scored.score); });
  best.insert(place, {.step = progress.step, .score = score});
  best.resize(std::min(best.size(), static_cast<size_t>(keep_best_)));
  return improved;
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
  const double nll = sums.tokens > 0 ? sums.MeanNll() : NAN;  // without a masked token nothing is the best
  progress.validation_nll = nll;
  TranslatedValidation translated;
  if (bleu_) {
    HADAL_ASSIGN_OR_RETURN(translated, bleu_(engine, scalars.update));
  }
  double score = nll;
  if (metric_ != ValidationMetric::kNll) {
    const TranslationScores scores = translated.scores.value_or(TranslationScores{.bleu = NAN, .chrf = NAN});
    score = metric_ == ValidationMetric::kBleu ? scores.bleu : scores.chrf;
  }
  const bool best = Note(score, progress);
  if (sink_ == nullptr) return absl::OkStatus();
  std::optional<double> accuracy;
  if (!engine.stage().plan().options.has_decoder() && sums.tokens > 0) {
    accuracy = static_cast<double>(sums.hits) / static_cast<double>(sums.tokens);
  }
  sink_->OnValidation({.step = progress.step,
                       .nll = nll,
                       .perplexity = Exp(nll),
                       .accuracy = accuracy,
                       .scores = translated.scores,
                       .best = best,
                       .by_nll = metric_ == ValidationMetric::kNll,
                       .sentences = identity_.samples,
                       .seconds = watch.Seconds(),
                       .corpora = OfCorpora(of_batches, translated)});
  if (!translated.warning.empty()) sink_->OnText(progress.step, TextKind::kWarning, translated.warning);
  if (translated.scores.has_value()) sink_->OnText(progress.step, TextKind::kSample, translated.sample);
  return absl::OkStatus();
}

}  // namespace hadal
