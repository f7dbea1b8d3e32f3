#include "pipeline/decode/beam_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kVocabulary = 300;

// Logits of which many are equal.
std::vector<float> TiedLogits(uint64_t seed, int levels) {
  std::vector<float> logits(kVocabulary);
  for (int v = 0; v < kVocabulary; ++v) {
    logits[v] = static_cast<float>(std::floor(levels * UniformAt(seed, RandomSite::kSampling, 5, v))) * 0.25f;
  }
  return logits;
}

// The definition: all tokens in order of likelihood, cut by count, then by mass.
std::vector<int32_t> Reference(const DrawOptions& options, const std::vector<float>& logits, bool may_end) {
  std::vector<int32_t> order;
  for (int32_t v = may_end ? kEosToken : kUnknownToken; v < kVocabulary; ++v) order.push_back(v);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0 && options.top_k < std::ssize(order)) order.resize(options.top_k);
  std::vector<long double> mass;
  for (const int32_t v : order) mass.push_back(std::exp(static_cast<long double>(logits[v]) / options.temperature));
  const long double all = std::accumulate(mass.begin(), mass.end(), 0.0L);
  long double before = 0;
  size_t kept = 0;
  while (kept < order.size() && before < options.top_p * all) before += mass[kept++];
  order.resize(kept);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> SortedTokens(const std::vector<WeightedToken>& kept) {
  std::vector<int32_t> tokens;
  for (const WeightedToken& one : kept) tokens.push_back(one.token);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

TEST(TokenDrawTest, KeepsWhatTheDefinitionKeepsAmongTies) {
  std::set<size_t> sizes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const int levels : {2, 9, 40}) {
      const std::vector<float> logits = TiedLogits(seed, levels);
      for (const double temperature : {0.3, 1.0, 1.7}) {
        for (const int32_t top_k : {0, 1, 7, 150, 1000}) {
          for (const double top_p : {1e-9, 0.3137, 0.9137, 0.999, 1.0}) {
            const DrawOptions options{.temperature = temperature, .top_k = top_k, .top_p = top_p};
            const bool may_end = seed % 2 == 0;
            const std::vector<int32_t> kept = SortedTokens(KeptTokens(options, logits, may_end));
            ASSERT_EQ(kept, Reference(options, logits, may_end))
                << "seed " << seed << ", " << levels << " levels, temperature " << temperature << ", top-k " << top_k
                << ", top-p " << top_p;
            sizes.insert(kept.size());
          }
        }
      }
    }
  }
  EXPECT_GT(sizes.size(), 100u);
}

// Masses 8, 4, 2, 1, 1 of 16.
TEST(TokenDrawTest, TheTokenAtWhichTopPIsReachedIsKept) {
  const float two = std::log(2.0f);
  std::vector<float> logits = {99, 99, 99, 3 * two, 2 * two, two, 0, 0};
  const auto kept = [&](double top_p, int32_t top_k = 0) {
    return SortedTokens(KeptTokens({.top_k = top_k, .top_p = top_p}, logits, /*may_end=*/false));
  };
  EXPECT_THAT(kept(0.49), ElementsAre(3));
  EXPECT_THAT(kept(0.51), ElementsAre(3, 4));
  EXPECT_THAT(kept(0.9), ElementsAre(3, 4, 5, 6)) << "of the two last, which are equal, the lower";
  EXPECT_THAT(kept(0.6, 2), ElementsAre(3)) << "8 of the 12 that top-k leaves";
  EXPECT_THAT(kept(1), ElementsAre(3, 4, 5, 6, 7));
  logits[3] = NAN, logits[4] = -INFINITY;
  EXPECT_THAT(kept(1), ElementsAre(5, 6, 7));
  logits[5] = INFINITY;
  EXPECT_THAT(kept(1), IsEmpty());
  EXPECT_THAT(KeptTokens({}, std::vector<float>(8, NAN), true), IsEmpty());
}

// Pearson's statistic of 20,000 draws; its 99.9% quantile with 5 degrees of freedom is 20.5, and the seed is fixed.
TEST(TokenDrawTest, DrawsHaveTheProbabilitiesOfTheTemperedKeptTokens) {
  const std::vector<float> logits = {5, 5, -1, 0.5f, 2, 1.5f, -2, 1, 0.5f};
  const DrawOptions options{.temperature = 1.4, .top_k = 6, .seed = 77};
  const std::vector<WeightedToken> kept = KeptTokens(options, logits, /*may_end=*/true);
  constexpr uint32_t kDraws = 20000;
  std::vector<int> counts(logits.size());
  for (uint32_t i = 0; i < kDraws; ++i)
    ++counts[TokenAt(kept, DrawUniform(options.seed, i / 100, i % 10, i / 10 % 10))];
  double sum = 0, statistic = 0;
  for (const int v : {2, 3, 4, 5, 7, 8}) sum += std::exp(logits[v] / options.temperature);
  for (const int v : {2, 3, 4, 5, 7, 8}) {
    const double expected = kDraws * std::exp(logits[v] / options.temperature) / sum;
    statistic += (counts[v] - expected) * (counts[v] - expected) / expected;
  }
  EXPECT_LT(statistic, 20.5);
  EXPECT_EQ(counts[6], 0) << "the seventh";
}

TEST(TokenDrawTest, NoTwoDrawsShareARandomNumber) {
  std::set<double> drawn;
  for (const uint64_t seed : {1, 2}) {
    for (uint32_t sentence = 0; sentence < 5; ++sentence) {
      for (uint32_t path = 0; path < 5; ++path) {
        for (uint32_t position = 0; position < 5; ++position) drawn.insert(DrawUniform(seed, sentence, path, position));
      }
    }
  }
  EXPECT_EQ(drawn.size(), 250u);
  EXPECT_GE(*drawn.begin(), 0);
  EXPECT_LT(*drawn.rbegin(), 1);
}

TEST(TokenDrawTest, TheLastNumberBelowOneDrawsAToken) {
  const std::vector<WeightedToken> kept = {{4, 0.1}, {5, 0.7}, {6, 0.2}, {7, 0}};
  EXPECT_EQ(TokenAt(kept, 0), 4);
  EXPECT_EQ(TokenAt(kept, 1 - 0x1p-53), 6);
}

}  // namespace
}  // namespace hadal
