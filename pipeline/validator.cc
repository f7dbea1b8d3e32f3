#include "pipeline/validator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layers/chunk_part.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/crc32c.h"
#include "runtime/data/chrf.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/word_errors.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"
#include "runtime/trace.h"

namespace hadal {
namespace {

struct ScoreCounts {
  int64_t segments = 0;
  BleuCounts bleu;
  ChrfCounts chrf;
  WordErrors words, characters;

  void Count(const std::string& hypothesis, const std::string& reference, BleuTokenizer tokenizer) {
    ++segments;
    bleu += CountBleuMatches(hypothesis, {&reference, 1}, tokenizer);
    chrf += CountChrfMatches(hypothesis, {&reference, 1}, kChrfMostWordOrder);
    words += CountWordErrors(hypothesis, reference);
    characters += CountCharacterErrors(hypothesis, reference);
  }
  TranslationScores Scores() const {
    return {.bleu = BleuFromCounts(bleu).score,
            .chrf = ChrfFromCounts(chrf),
            .word_error_rate = words.Rate(),
            .character_error_rate = characters.Rate()};
  }
};

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

ValidationBleu::ValidationBleu(const Corpus& corpus, CorpusVocabularies vocabularies, int64_t sentences,
                               const ModelPlan& plan, const PipelineLayout& pipeline, absl::Duration timeout,
                               BleuTokenizer tokenizer, std::function<bool()> stop)
    : plan_(plan),
      timeout_(timeout),
      tokenizer_(tokenizer),
      stop_(std::move(stop)),
      vocabularies_(std::move(vocabularies)) {
  HADAL_CHECK(pipeline.decoder.has_value());
  HADAL_CHECK_GE(sentences, 1);
  const std::vector<std::string>& corpora = corpus.manifest().corpora;
  for (size_t c = 0; c < corpora.size() && corpora.size() > 1; ++c) {
    const absl::StatusOr<Direction> direction = ParseDirection(corpora[c].substr(0, corpora[c].find(' ')));
    const bool by_language = tokenizer == BleuTokenizer::k13a && direction.ok();
    tokenizers_.push_back(by_language ? BleuTokenizerOf(direction->target) : tokenizer);
  }
  const int64_t count = std::min(sentences, corpus.size());
  const auto longest = static_cast<size_t>(pipeline.decode_capacity.longest_source);
  for (int64_t i = 0; i < count; ++i) {
    const SampleView sample = corpus.sample(i * corpus.size() / count);
    std::vector<int32_t> source(sample.prefix.begin(), sample.prefix.end());
    source.insert(source.end(), sample.source.begin(), sample.source.end());
    const auto rows = static_cast<size_t>(RowsOf(sample).source);  // of text with </s>
    if (rows < (sample.frame_width > 0 ? 1 : 2) || rows > longest) {
      ++skipped_;
      continue;
    }
    const std::vector<int32_t> target(sample.target.begin(), sample.target.end());
    const bool tagged = pipeline.decoder->prefixes;
    const bool known = corpora.size() < 2 || static_cast<size_t>(sample.corpus_id) < corpora.size();
    if (!known || !AreIdsOf(corpus.manifest(), source, target) || (tagged && target.empty())) {
      corpus_status_ = CorpusChanged(corpus, i * corpus.size() / count);
      return;
    }
    sources_.push_back(std::move(source));
    if (sample.frame_width > 0) frames_.emplace_back(sample.frames.begin(), sample.frames.end());
    starts_.push_back({.prefix = {target.begin(), target.begin() + (tagged ? 1 : 0)}});
    references_.push_back(vocabularies_.target.Decode(target));
    corpus_ids_.push_back(sample.corpus_id);
  }
}

absl::StatusOr<TranslatedValidation> ValidationBleu::operator()(Engine& engine, int64_t update) {
  HADAL_RETURN_IF_ERROR(corpus_status_);
  if (sources_.empty()) return TranslatedValidation();
  if (decoder_ == nullptr) {
    HADAL_CHECK(engine.decoder() != nullptr);
    decoder_ = Decoder::Over(plan_, engine.stage().parameters(), engine.stage().stream(), engine.grid().pipeline(),
                             *engine.decoder(), timeout_);
  }
  const std::vector<std::span<const float>> utterances(frames_.begin(), frames_.end());
  HADAL_ASSIGN_OR_RETURN(const std::vector<Translation> translations,
                         decoder_->Translate(sources_, update, starts_, utterances, stop_));
  hypotheses_.clear();
  for (const Translation& translation : translations) {
    hypotheses_.push_back(translation.empty() ? "" : vocabularies_.target.Decode(translation.front().tokens));
  }
  TranslatedValidation result = Score();
  result.sample = SampleOf(next_sample_);
  result.warning = WarningOfAlike();
  next_sample_ = (next_sample_ + 1) % sources_.size();
  return result;
}

TranslatedValidation ValidationBleu::Score() const {
  ScoreCounts total;
  std::vector<ScoreCounts> of_corpora(tokenizers_.size());
  for (size_t i = 0; i < hypotheses_.size(); ++i) {
    total.Count(hypotheses_[i], references_[i], tokenizer_);
    if (tokenizers_.empty()) continue;
    const auto corpus = static_cast<size_t>(corpus_ids_[i]);
    of_corpora[corpus].Count(hypotheses_[i], references_[i], tokenizers_[corpus]);
  }
  TranslatedValidation result{.scores = total.Scores()};
  for (const ScoreCounts& counts : of_corpora) {
    result.corpora.push_back(counts.segments > 0 ? std::optional(counts.Scores()) : std::nullopt);
  }
  return result;
}

std::string ValidationBleu::WarningOfAlike() {
  constexpr size_t kFewest = 20, kBeginningBytes = 24;  // a word is repeated for as long as the source allows
  constexpr double kShare = 0.8;
  std::map<std::string, size_t> beginnings;
  size_t most = 0;
  for (const std::string& hypothesis : hypotheses_) {
    most = std::max(most, ++beginnings[hypothesis.substr(0, kBeginningBytes)]);
  }
  const bool alike =
      sources_.size() >= kFewest && static_cast<double>(most) >= kShare * static_cast<double>(sources_.size());
  alike_in_a_row_ = alike ? alike_in_a_row_ + 1 : 0;
  if (alike_in_a_row_ != 2) return "";
  return absl::StrCat(
      most, " of ", sources_.size(), " validation sentences have the same translation: the output does ",
      "not depend on the source. Early in training this passes; if it stays, the encoder learns nothing: ",
      "try a lower learning rate, a longer warm-up, or another residual method");
}

std::string ValidationBleu::SampleOf(size_t sentence) const {
  return absl::StrCat("source:     ",
                      plan_.options.reads_speech() ? absl::StrCat("utterance ", sentence + 1)
                                                   : vocabularies_.source.Decode(sources_[sentence]),
                      "\nreference:  ", references_[sentence], "\nhypothesis: ", hypotheses_[sentence]);
}

Validator::Validator(const ValidatorSetup& setup, ValidationBatches packed)
    : batches_(std::move(packed.batches)),
      too_long_(packed.too_long),
      bleu_(setup.bleu),
      metric_(setup.metric),
      keep_best_(setup.keep_best),
      stop_requested_(setup.stop_requested),
      part_(setup.part),
      sink_(setup.sink) {
  for (const PackedBatch& batch : batches_) AddTo(identity_, batch);
  if (setup.corpus.manifest().corpora.size() < 2) return;
  corpora_ = setup.corpus.manifest().corpora;
  corpus_of_batch_ = std::move(packed.corpus_ids);
}

absl::StatusOr<Validator> Validator::Create(const ValidatorSetup& setup) {
  HADAL_CHECK_GE(setup.part, 1);
  HADAL_ASSIGN_OR_RETURN(ValidationBatches packed,
                         MakeValidationBatches(setup.corpus, setup.capacity, setup.max_sentences, setup.masking));
  if (packed.target_tokens == 0) {
    return InvalidArgumentError(
        "no token of the validation sentences is masked; raise data.masking.share, or "
        "validation.max_sentences if it is not 0");
  }
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

absl::StatusOr<bool> Validator::Stops(Engine& engine) const {
  return engine.collectives().AnyRank(stop_requested_ && stop_requested_(), "a request to stop a validation");
}

absl::StatusOr<bool> Validator::Evaluate(Engine& engine, const StepScalars& scalars,
                                         std::vector<LossSums>& of_batches) const {
  for (std::span<const PackedBatch> left = batches_; !left.empty();) {
    const std::span<const PackedBatch> part = left.first(std::min(static_cast<size_t>(part_), left.size()));
    left = left.subspan(part.size());
    std::vector<LossSums> sums;
    HADAL_RETURN_IF_ERROR(engine.Evaluate(part, scalars, /*row_nll=*/nullptr, &sums).status());
    of_batches.insert(of_batches.end(), sums.begin(), sums.end());
    if (left.empty() && !bleu_) break;  // nothing is left to do
    HADAL_ASSIGN_OR_RETURN(const bool stops, Stops(engine));
    if (stops) return false;
  }
  return true;
}

absl::StatusOr<bool> Validator::Run(Engine& engine, TrainingProgress& progress) {
  const TraceScope scope(&engine.trace(), {.kind = TraceKind::kValidation});
  const Stopwatch watch;
  const StepScalars scalars{.seed = progress.seed,
                            .step = progress.step,
                            .update = std::max<int64_t>(progress.growth_update(), 1),
                            .training = false};
  std::vector<LossSums> of_batches;
  HADAL_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(engine, scalars, of_batches));
  if (!evaluated) return false;
  LossSums sums;
  for (const LossSums& of_batch : of_batches) sums.Add(of_batch);
  TranslatedValidation translated;
  if (bleu_) {
    HADAL_ASSIGN_OR_RETURN(translated, bleu_(engine, scalars.update));
    HADAL_ASSIGN_OR_RETURN(const bool stops, Stops(engine));
    if (stops) return false;
  }
  const double nll = sums.MeanNll();
  progress.validation_nll = nll;
  double score = nll;
  if (metric_ != ValidationMetric::kNll) {
    const TranslationScores scores = translated.scores.value_or(TranslationScores{.bleu = NAN, .chrf = NAN});
    score = metric_ == ValidationMetric::kBleu ? scores.bleu : scores.chrf;
  }
  const bool best = Note(score, progress);
  if (sink_ == nullptr) return true;
  std::optional<double> accuracy;
  if (!engine.stage().plan().options.has_decoder()) {
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
  return true;
}

}  // namespace hadal
