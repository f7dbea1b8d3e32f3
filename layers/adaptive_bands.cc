#include "layers/adaptive_bands.h"
#include "runtime/math.h"

#include <algorithm>

namespace hadal {

std::vector<AdaptiveBand> AdaptiveBands(const ModelOptions& options) {
  std::vector<AdaptiveBand> bands;
  if (!options.adaptive()) return bands;
  const AdaptiveCutoffs& cutoffs = options.adaptive_cutoffs;
  int64_t divisor = 1;
  int32_t first = 0;
  for (int32_t i = 0; i <= cutoffs.count; ++i) {
    const int32_t end = i < cutoffs.count ? cutoffs.ids[i] : options.target_vocabulary;
    bands.push_back(
        {.index = i, .first = first, .words = end - first, .width = static_cast<int32_t>(options.d_model / divisor)});
    first = end;
    divisor *= options.adaptive_factor;
  }
  return bands;
}

double TokenShare(const AdaptiveBand& band, const ModelOptions& options) {
  const double begin = std::max(band.first, 1), end = double(band.first) + band.words;
  return Log(end / begin) / Log(double(options.target_vocabulary));
}

double HeadProducts(const ModelOptions& options) {
  const double d = options.d_model;
  if (!options.adaptive()) return d * options.target_vocabulary;
  double sum = 0;
  for (const AdaptiveBand& band : AdaptiveBands(options)) {
    sum += band.index == 0 ? d * (band.words + options.adaptive_cutoffs.count)
                           : TokenShare(band, options) * band.width * (d + band.words);
  }
  return sum;
}

double InputProducts(const ModelOptions& options, int32_t tables) {
  if (tables <= 1) return 0;
  double sum = 0;
  for (const AdaptiveBand& band : AdaptiveBands(options)) {
    sum += TokenShare(band, options) * options.d_model * band.width;
  }
  return sum;
}

}  // namespace hadal
