#include "runtime/data/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "runtime/data/ngrams.h"
#include "runtime/math.h"

namespace hadal {
namespace {

using TokenIds = std::vector<int32_t>;

// Numbers the distinct tokens of one segment.
class SegmentVocabulary {
 public:
  TokenIds Ids(BleuTokenizer tokenizer, const std::string& text) {
    TokenIds ids;
    for (std::string& token : TokenizeForBleu(tokenizer, text)) {
      ids.push_back(ids_.try_emplace(std::move(token), static_cast<int32_t>(ids_.size())).first->second);
    }
    return ids;
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;
};

int64_t ClosestLength(int64_t length, const std::vector<TokenIds>& references) {
  int64_t closest = static_cast<int64_t>(references.front().size());
  for (const TokenIds& reference : references) {
    const int64_t candidate = static_cast<int64_t>(reference.size());
    const int64_t gain = std::abs(length - closest) - std::abs(length - candidate);
    if (gain > 0 || (gain == 0 && candidate < closest)) closest = candidate;
  }
  return closest;
}

}  // namespace

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (int n = 0; n < kBleuOrders; ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  hypothesis_tokens += other.hypothesis_tokens;
  reference_tokens += other.reference_tokens;
  return *this;
}

BleuCounts CountBleuMatches(const std::string& hypothesis, absl::Span<const std::string> references,
                            BleuTokenizer tokenizer) {
  HADAL_CHECK(!references.empty());
  SegmentVocabulary vocabulary;
  const TokenIds tokens = vocabulary.Ids(tokenizer, hypothesis);
  std::vector<TokenIds> reference_tokens;
  for (const std::string& reference : references) reference_tokens.push_back(vocabulary.Ids(tokenizer, reference));

  BleuCounts counts;
  counts.hypothesis_tokens = static_cast<int64_t>(tokens.size());
  counts.reference_tokens = ClosestLength(counts.hypothesis_tokens, reference_tokens);
  for (int order = 1; order <= kBleuOrders; ++order) {
    std::vector<NgramCounts> reference_ngrams;
    reference_ngrams.reserve(reference_tokens.size());
    for (const TokenIds& reference : reference_tokens) reference_ngrams.push_back(CountNgrams(reference, order));
    for (const auto& [ngram, count] : CountNgrams(tokens, order)) {
      int64_t allowed = 0;  // the n-gram's largest count in any one reference
      for (const NgramCounts& ngrams : reference_ngrams) allowed = std::max(allowed, CountOf(ngrams, ngram));
      counts.matches[order - 1] += std::min(count, allowed);
      counts.totals[order - 1] += count;
    }
  }
  return counts;
}

BleuScore BleuFromCounts(const BleuCounts& counts) {
  BleuScore result;
  result.counts = counts;
  const double hypothesis = static_cast<double>(counts.hypothesis_tokens);
  const double reference = static_cast<double>(counts.reference_tokens);
  if (counts.hypothesis_tokens < counts.reference_tokens) {
    result.brevity_penalty = counts.hypothesis_tokens > 0 ? Exp(1 - reference / hypothesis) : 0.0;
  }
  if (std::all_of(counts.matches.begin(), counts.matches.end(), [](int64_t m) { return m == 0; })) return result;

  double smoothing = 1;
  double log_sum = 0;
  bool every_order_exists = true;
  for (int n = 0; n < kBleuOrders; ++n) {
    const double total = static_cast<double>(counts.totals[n]);
    if (counts.totals[n] == 0) {
      every_order_exists = false;
      break;
    }
    if (counts.matches[n] == 0) {
      smoothing *= 2;
      result.precisions[n] = 100.0 / (smoothing * total);
    } else {
      result.precisions[n] = 100.0 * static_cast<double>(counts.matches[n]) / total;
    }
    log_sum += Log(result.precisions[n]);
  }
  if (every_order_exists) result.score = result.brevity_penalty * Exp(log_sum / kBleuOrders);
  return result;
}

std::string BleuSignature(int references, BleuTokenizer tokenizer) {
  return absl::StrCat("nrefs:", references, "|case:mixed|eff:no|tok:", ToWord(kBleuTokenizers, tokenizer),
                      "|smooth:exp|version:", kSacrebleuVersion);
}

std::string BleuDetails(const BleuScore& score) {
  const BleuCounts& counts = score.counts;
  const double ratio = counts.reference_tokens == 0 ? 0.0
                                                    : static_cast<double>(counts.hypothesis_tokens) /
                                                          static_cast<double>(counts.reference_tokens);
  return absl::StrFormat("%.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %d ref_len = %d)", score.precisions[0],
                         score.precisions[1], score.precisions[2], score.precisions[3], score.brevity_penalty, ratio,
                         counts.hypothesis_tokens, counts.reference_tokens);
}

}  // namespace hadal
