#include "pipeline/validation_bleu.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {

ValidationBleu::ValidationBleu(const Corpus& corpus, const Vocabulary& target, int64_t sentences, const ModelPlan& plan,
                               const PipelinePlan& pipeline, absl::Duration timeout)
    : plan_(plan), timeout_(timeout), target_(target) {
  HADAL_CHECK(pipeline.decoder.has_value());
  const int64_t count = sentences == 0 ? corpus.size() : std::min(sentences, corpus.size());
  const auto longest = static_cast<size_t>(pipeline.decode_capacity.longest_source - 1);
  for (int64_t i = 0; i < count; ++i) {
    const SampleView sample = corpus.sample(i);
    std::vector<int32_t> source(sample.prefix.begin(), sample.prefix.end());
    source.insert(source.end(), sample.source.begin(), sample.source.end());
    if (source.empty() || source.size() > longest) {
      ++skipped_;
      continue;
    }
    sources_.push_back(std::move(source));
    references_.push_back(target_.Decode(sample.target));
  }
}

absl::StatusOr<double> ValidationBleu::operator()(Engine& engine, int64_t update) {
  if (sources_.empty()) return 0.0;
  if (decoder_ == nullptr) {
    HADAL_CHECK(engine.decoder() != nullptr);
    decoder_ = Decoder::Over(plan_, engine.stage().parameters(), engine.stage().stream(), engine.grid().pipeline(),
                             *engine.decoder(), timeout_);
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<Translation> translations, decoder_->Translate(sources_, update));
  hypotheses_.clear();
  for (const Translation& translation : translations) {
    hypotheses_.push_back(translation.empty() ? "" : target_.Decode(translation.front().tokens));
  }
  HADAL_ASSIGN_OR_RETURN(const BleuScore bleu, CorpusBleu(hypotheses_, {references_}));
  return bleu.score;
}

}  // namespace hadal
