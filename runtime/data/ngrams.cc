#include "runtime/data/ngrams.h"

#include <algorithm>

#include "runtime/check.h"

namespace hadal {

NgramCounts CountNgrams(absl::Span<const int32_t> tokens, int order) {
  HADAL_CHECK(order >= 1 && order <= kMostNgramOrder);
  std::vector<Ngram> ngrams;
  for (size_t begin = 0; begin + order <= tokens.size(); ++begin) {
    Ngram ngram{};
    std::copy_n(tokens.begin() + begin, order, ngram.begin());
    ngrams.push_back(ngram);
  }
  std::sort(ngrams.begin(), ngrams.end());
  NgramCounts counts;
  for (const Ngram& ngram : ngrams) {
    if (counts.empty() || counts.back().first != ngram) counts.emplace_back(ngram, 0);
    ++counts.back().second;
  }
  return counts;
}

int64_t CountOf(const NgramCounts& counts, const Ngram& ngram) {
  const auto at = std::lower_bound(counts.begin(), counts.end(), ngram,
                                   [](const auto& entry, const Ngram& wanted) { return entry.first < wanted; });
  return at != counts.end() && at->first == ngram ? at->second : 0;
}

}  // namespace hadal
