#include "pipeline/decode/token_draw.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"

namespace hadal {
namespace {

constexpr size_t kFirstSorted = 64;  // top-p seldom needs more tokens

std::vector<WeightedToken> Followers(std::span<const float> logits, bool may_end) {
  std::vector<WeightedToken> followers;
  followers.reserve(logits.size());
  for (size_t v = 0; v < logits.size(); ++v) {
    const auto token = static_cast<int32_t>(v);
    if (token == kBosToken || token == kPadToken || (token == kEosToken && !may_end)) continue;
    if (logits[v] > -INFINITY) followers.push_back({token});
  }
  return followers;
}

}  // namespace

std::vector<WeightedToken> KeptTokens(const DrawOptions& options, std::span<const float> logits, bool may_end) {
  std::vector<WeightedToken> kept = Followers(logits, may_end);
  const auto likelier = [logits](const WeightedToken& a, const WeightedToken& b) {
    return logits[a.token] != logits[b.token] ? logits[a.token] > logits[b.token] : a.token < b.token;
  };
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < kept.size()) {
    std::partial_sort(kept.begin(), kept.begin() + options.top_k, kept.end(), likelier);
    kept.resize(options.top_k);
  }
  if (kept.empty()) return kept;
  const double best = logits[std::min_element(kept.begin(), kept.end(), likelier)->token];
  if (!std::isfinite(best)) return {};
  double sum = 0;
  for (WeightedToken& one : kept) sum += one.weight = std::exp((logits[one.token] - best) / options.temperature);
  if (options.top_p == 1) return kept;
  double reached = 0;
  for (size_t i = 0, sorted = 0; i < kept.size(); ++i) {
    if (i == sorted) {
      const size_t from = sorted;
      sorted = std::min(kept.size(), std::max(kFirstSorted, 4 * sorted));
      std::partial_sort(kept.begin() + static_cast<int64_t>(from), kept.begin() + static_cast<int64_t>(sorted),
                        kept.end(), likelier);
    }
    reached += kept[i].weight;
    if (reached >= options.top_p * sum) kept.resize(i + 1);
  }
  return kept;
}

int32_t TokenAt(std::span<const WeightedToken> kept, double uniform) {
  HADAL_CHECK_GT(kept.size(), size_t{0});
  double sum = 0, reached = 0;
  for (const WeightedToken& one : kept) sum += one.weight;
  for (const WeightedToken& one : kept) {
    reached += one.weight;
    if (uniform * sum < reached) return one.token;
  }
  return kept.back().token;  // not reached: uniform < 1, and both sums are the same
}

double DrawUniform(uint64_t seed, uint32_t sentence, uint32_t path, uint32_t position) {
  const RandomCounter counter{.seed = seed, .step = path, .micro_batch = sentence, .site = RandomSite::kSampling};
  const auto [low, high, third, fourth] = Philox4x32(seed, counter.At(position));
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace hadal
