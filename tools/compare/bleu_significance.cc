#include "tools/compare/bleu_significance.h"

#include <cmath>
#include <numeric>

#include "runtime/check.h"
#include "runtime/random.h"

namespace hadal {
namespace {

double BleuOf(absl::Span<const BleuCounts> segments) {
  BleuCounts sum;
  for (const BleuCounts& counts : segments) sum += counts;
  return BleuFromCounts(sum).score;
}

// Draw number `draw` of a resample, uniform over [0, segments): the high word of a 32-bit number times the count.
size_t DrawSegment(uint64_t seed, uint32_t resample, uint32_t draw, size_t segments) {
  const std::array<uint32_t, 4> words =
      Philox4x32(seed, {draw / 4, static_cast<uint32_t>(RandomSite::kSampling), resample, 0});
  return static_cast<size_t>(static_cast<uint64_t>(words[draw % 4]) * segments >> 32);
}

}  // namespace

std::vector<BleuCounts> CountSegments(absl::Span<const std::string> hypotheses,
                                      absl::Span<const std::string> references) {
  HADAL_CHECK(hypotheses.size() == references.size());
  std::vector<BleuCounts> counts;
  counts.reserve(hypotheses.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    counts.push_back(CountBleuMatches(hypotheses[i], absl::MakeConstSpan(&references[i], 1)));
  }
  return counts;
}

double PairedBootstrapPValue(absl::Span<const BleuCounts> a, absl::Span<const BleuCounts> b,
                             const BootstrapOptions& options) {
  HADAL_CHECK(a.size() == b.size());
  if (a.empty()) return 1;
  std::vector<double> differences;
  for (int resample = 0; resample < options.resamples; ++resample) {
    BleuCounts sum_a, sum_b;
    for (size_t draw = 0; draw < a.size(); ++draw) {
      const size_t segment =
          DrawSegment(options.seed, static_cast<uint32_t>(resample), static_cast<uint32_t>(draw), a.size());
      sum_a += a[segment];
      sum_b += b[segment];
    }
    differences.push_back(BleuFromCounts(sum_a).score - BleuFromCounts(sum_b).score);
  }
  const double mean =
      std::accumulate(differences.begin(), differences.end(), 0.0) / static_cast<double>(differences.size());
  const double real = std::abs(BleuOf(a) - BleuOf(b));
  int as_far = 0;
  for (const double difference : differences) as_far += std::abs(difference - mean) >= real ? 1 : 0;
  return (1.0 + as_far) / (1.0 + options.resamples);
}

}  // namespace hadal
