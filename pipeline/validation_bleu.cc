#include "pipeline/validation_bleu.h"

#include <algorithm>

#include "runtime/status_macros.h"

namespace hadal {

ValidationBleu::ValidationBleu(const Corpus& corpus, const Vocabulary& target, int64_t sentences, const ModelPlan& plan,
                               const PipelinePlan& pipeline, const DecoderOptions& decoder, absl::Duration timeout)
    : plan_(plan), pipeline_(pipeline), options_(decoder), timeout_(timeout), target_(target) {
  const int64_t count = sentences == 0 ? corpus.size() : std::min(sentences, corpus.size());
  const size_t longest = std::min(decoder.longest_source, plan.options.max_positions) - 1;
  size_t longest_seen = 1;
  for (int64_t i = 0; i < count; ++i) {
    const SampleView sample = corpus.sample(i);
    std::vector<int32_t> source(sample.prefix.begin(), sample.prefix.end());
    source.insert(source.end(), sample.source.begin(), sample.source.end());
    if (source.empty() || source.size() > longest) {
      ++skipped_;
      continue;
    }
    longest_seen = std::max(longest_seen, source.size());
    sources_.push_back(std::move(source));
    references_.push_back(target_.Decode(sample.target));
  }
  options_.longest_source = static_cast<int32_t>(longest_seen) + 1;
}

absl::StatusOr<double> ValidationBleu::operator()(Engine& engine, int64_t update) {
  if (sources_.empty()) return 0.0;
  if (decoder_ == nullptr) {
    HADAL_ASSIGN_OR_RETURN(decoder_,
                           Decoder::Create(plan_, pipeline_, engine.stage().parameters(), engine.stage().stream(),
                                           engine.grid().pipeline(), options_, timeout_));
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
