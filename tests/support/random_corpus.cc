#include "tests/support/random_corpus.h"

#include "runtime/data/packed_batch.h"
#include "runtime/random.h"
#include "tests/support/corpus_of.h"

namespace hadal::testing {
namespace {

// Without a `source_vocabulary` frames of `frame_width`, or no source.
Corpus MakeCorpus(int samples, int longest, int source_vocabulary, int vocabulary, uint32_t seed,
                  int32_t frame_width = 0) {
  uint64_t next = 0;
  const auto draw = [&](int n) { return static_cast<int32_t>(UniformAt(seed, RandomSite::kSampling, 99, next++) * n); };
  std::vector<Sample> list(samples);
  for (Sample& sample : list) {
    if (source_vocabulary > 0) sample.source.resize(1 + draw(longest));
    sample.frame_width = frame_width;
    if (frame_width > 0) sample.frames.resize((1 + draw(4 * longest)) * frame_width);
    for (float& value : sample.frames) value = static_cast<float>(draw(2001) - 1000) / 250;
    sample.target.resize(1 + draw(longest));
    for (int32_t& token : sample.source) token = kSpecialTokens + draw(vocabulary - kSpecialTokens);
    for (int32_t& token : sample.target) token = kSpecialTokens + draw(vocabulary - kSpecialTokens);
  }
  return CorpusOf(list, source_vocabulary, vocabulary);
}

}  // namespace

Corpus RandomCorpus(int samples, int longest, int vocabulary, uint32_t seed) {
  return MakeCorpus(samples, longest, vocabulary, vocabulary, seed);
}

Corpus RandomCorpusFor(const ModelOptions& model, int samples, int longest, uint32_t seed) {
  return MakeCorpus(samples, longest, model.source_vocabulary, model.target_vocabulary, seed, model.frame_width);
}

std::optional<TokenMasking> MaskingFor(const ModelOptions& model) {
  if (model.has_decoder()) return std::nullopt;
  const int32_t mask = model.target_vocabulary - 1;
  return TokenMasking{.share = 0.3, .mask_token = mask, .vocabulary = mask + 1, .special = {0, 1, 2, 3, mask}};
}

}  // namespace hadal::testing
