#include "pipeline/validation_bleu.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/data/chrf.h"
#include "runtime/data/corpus.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/sampling_order.h"
#include "runtime/data/word_errors.h"
#include "runtime/status_macros.h"

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

}  // namespace

ValidationBleu::ValidationBleu(const Corpus& corpus, CorpusVocabularies vocabularies, int64_t sentences,
                               const ModelPlan& plan, const PipelineLayout& pipeline, absl::Duration timeout,
                               BleuTokenizer tokenizer)
    : plan_(plan), timeout_(timeout), tokenizer_(tokenizer), vocabularies_(std::move(vocabularies)) {
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
                         decoder_->Translate(sources_, update, starts_, utterances));
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
  constexpr size_t kFewest = 20, kBeginningBytes = 24;  // a repeated word goes on for as long as the source allows
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

}  // namespace hadal
