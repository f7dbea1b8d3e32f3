#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "pipeline/decode/beam_search.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

// A tiny random language model: log-probabilities that are a function of the prefix.
class RandomModel {
 public:
  RandomModel(int32_t vocabulary, uint64_t seed, double sharpness = 2)
      : vocabulary_(vocabulary), seed_(seed), sharpness_(sharpness) {}

  int32_t vocabulary() const { return vocabulary_; }

  std::vector<float> Next(const Tokens& prefix) const {
    uint64_t key = seed_;
    for (const int32_t token : prefix) key = key * 1000003 + static_cast<uint64_t>(token) + 1;
    std::vector<float> z(vocabulary_);
    double sum = 0;
    for (int32_t v = 0; v < vocabulary_; ++v) {
      z[v] = static_cast<float>(sharpness_ * std::tan(UniformAt(key, RandomSite::kSampling, 7, v) - 0.5));
      sum += std::exp(z[v]);
    }
    for (float& value : z) value -= static_cast<float>(std::log(sum));
    return z;
  }

 private:
  int32_t vocabulary_;
  uint64_t seed_;
  double sharpness_;
};

// Runs the search against the model, offering the candidates that it asks for.
std::vector<Hypothesis> Search(const RandomModel& model, const BeamOptions& options, int64_t longest,
                               const OutputStart& start = {}) {
  BeamSearch search(options, longest, start);
  std::vector<Tokens> prefixes = {{}};
  while (!search.done()) {
    std::vector<Tokens> next;
    for (const BeamSearch::Live& live : search.live()) {
      Tokens& prefix = next.emplace_back(prefixes[live.parent]);
      if (search.length() > 0) prefix.push_back(live.token);
      EXPECT_EQ(static_cast<int64_t>(prefix.size()), search.length());
    }
    prefixes = std::move(next);
    std::vector<std::vector<float>> probabilities(prefixes.size()), logits(prefixes.size());
    std::vector<Tokens> tokens(prefixes.size());
    std::vector<Continuations> continuations;
    for (size_t h = 0; h < prefixes.size(); ++h) {
      const std::vector<float> z = model.Next(prefixes[h]);
      Tokens order(z.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return z[a] > z[b]; });
      order.resize(std::min<size_t>(order.size(), CandidatesPerHypothesis(options)));
      for (const int32_t token : order) probabilities[h].push_back(z[token]);
      tokens[h] = order;
      continuations.push_back({tokens[h], probabilities[h], z[kEosToken]});
      if (!search.wants_logits()) continue;
      logits[h] = z;
      for (float& logit : logits[h]) logit += 3;
      continuations.back().logits = logits[h];
    }
    search.Advance(continuations);
  }
  return search.Finished();
}

// Whether the last n tokens occur before, too.
bool EndsInARepetition(const Tokens& tokens, int64_t n) {
  if (n == 0 || std::ssize(tokens) <= n) return false;
  return std::search(tokens.begin(), tokens.end() - 1, tokens.end() - n, tokens.end()) != tokens.end() - 1;
}

// fairseq's generator in its own order of work: dense scores of every hypothesis and token, flattened, sorted.
struct Simple {
  struct Item {
    Tokens tokens;
    double sum = 0;
  };

  std::vector<Item> finished;  // with </s> taken off
  std::vector<double> scores;

  Simple(const RandomModel& model, const BeamOptions& options, int64_t longest, const Tokens& prefix = {}) {
    const auto beam = static_cast<size_t>(options.beam);
    std::vector<Item> beams = {{}};
    for (int64_t step = 0; step <= longest && finished.size() < beam; ++step) {
      std::vector<Item> candidates;
      for (const Item& item : beams) {
        std::vector<float> z = model.Next(item.tokens);
        z[kBosToken] = z[kPadToken] = -INFINITY;
        for (int32_t v = 0; v < model.vocabulary(); ++v) {
          if (step >= longest && v != kEosToken) z[v] = -INFINITY;
          if (step < longest && step < options.min_length && v == kEosToken) z[v] = -INFINITY;
          if (step < std::ssize(prefix) && v != prefix[step]) z[v] = -INFINITY;
          if (z[v] == -INFINITY) continue;
          Item candidate = item;
          candidate.tokens.push_back(v);
          candidate.sum += z[v];
          const bool free = v == kEosToken || step < std::ssize(prefix);
          if (free || !EndsInARepetition(candidate.tokens, options.no_repeat_ngram)) candidates.push_back(candidate);
        }
      }
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const Item& a, const Item& b) { return a.sum > b.sum; });
      if (candidates.size() > 2 * beam) candidates.resize(2 * beam);
      beams.clear();
      for (size_t i = 0; i < candidates.size(); ++i) {
        Item item = candidates[i];
        if (item.tokens.back() != kEosToken) {
          if (beams.size() < beam) beams.push_back(item);
        } else if (i < beam && finished.size() < beam) {
          item.tokens.pop_back();
          finished.push_back(item);
          scores.push_back(item.sum / std::pow(static_cast<double>(step + 1), options.length_penalty));
        }
      }
    }
    std::vector<size_t> order(finished.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    std::vector<Item> sorted_items;
    std::vector<double> sorted_scores;
    for (const size_t i : order) sorted_items.push_back(finished[i]), sorted_scores.push_back(scores[i]);
    finished = sorted_items, scores = sorted_scores;
  }
};

TEST(BeamSearchTest, EqualsTheSimpleSearch) {
  int ended_early = 0, at_longest = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomModel model(static_cast<int32_t>(5 + seed % 20), seed, seed % 3 + 1.0);
    for (const int32_t beam : {1, 2, 4, 7, 64}) {
      const int64_t longest = 1 + static_cast<int64_t>(seed % 9);
      const BeamOptions options{.beam = beam,
                                .length_penalty = 0.3 * static_cast<double>(seed % 5),
                                .min_length = static_cast<int32_t>(seed % 3),
                                .no_repeat_ngram = static_cast<int32_t>(seed / 3 % 4)};
      const std::vector<Hypothesis> actual = Search(model, options, longest);
      const Simple expected(model, options, longest);
      ASSERT_EQ(actual.size(), expected.finished.size()) << "seed " << seed << ", beam " << beam;
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].tokens, expected.finished[i].tokens) << "seed " << seed << ", beam " << beam;
        const double rounding = options.no_repeat_ngram > 0 ? 1e-5 : 0;  // of what is read from logits
        EXPECT_NEAR(actual[i].log_probability, expected.finished[i].sum, rounding);
        EXPECT_NEAR(actual[i].score, expected.scores[i], rounding);
        (static_cast<int64_t>(actual[i].tokens.size()) == longest ? at_longest : ended_early) += 1;
      }
    }
  }
  EXPECT_GT(ended_early, 100);
  EXPECT_GT(at_longest, 100);
}

TEST(BeamSearchTest, ScoreIsTheSumOverThePenalisedLength) {
  const RandomModel model(30, 5);
  const std::vector<Hypothesis> found = Search(model, {.length_penalty = 0.6}, 10);
  EXPECT_FALSE(found.empty());
  for (const Hypothesis& h : found) {
    ASSERT_EQ(h.token_log_probabilities.size(), h.tokens.size() + 1);
    double sum = 0;
    Tokens prefix;
    for (size_t i = 0; i <= h.tokens.size(); ++i) {
      const int32_t token = i < h.tokens.size() ? h.tokens[i] : kEosToken;
      EXPECT_EQ(h.token_log_probabilities[i], model.Next(prefix)[token]);
      EXPECT_NE(token, kBosToken);
      EXPECT_NE(token, kPadToken);
      sum += h.token_log_probabilities[i];
      prefix.push_back(token);
    }
    EXPECT_EQ(h.log_probability, sum);
    EXPECT_EQ(h.score, sum / std::pow(static_cast<double>(h.tokens.size() + 1), 0.6));
  }
}

// Of as many tokens as the output may have, too.
TEST(BeamSearchTest, AForcedBeginningCountsInTheScore) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomModel model(14, seed);
    const Tokens prefix = {9, 5, static_cast<int32_t>(4 + seed % 10)};
    for (const int32_t beam : {1, 4}) {
      // Forced tokens may repeat: {9, 5, 9} is forced where no token occurs twice.
      const BeamOptions options{
          .beam = beam, .length_penalty = 0.6, .no_repeat_ngram = static_cast<int32_t>(seed / 5 % 2)};
      const int64_t longest = seed % 4 == 0 ? 3 : 9;
      const std::vector<Hypothesis> actual = Search(model, options, longest, {.prefix = prefix});
      const Simple expected(model, options, longest, prefix);
      ASSERT_EQ(actual.size(), expected.finished.size()) << "seed " << seed;
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].tokens, expected.finished[i].tokens) << "seed " << seed;
        EXPECT_NEAR(actual[i].score, expected.scores[i], 1e-5);
        EXPECT_EQ(actual[i].token_log_probabilities.size(), actual[i].tokens.size() + 1);
      }
    }
  }
}

TEST(BeamSearchTest, TheFirstSamplesDoNotDependOnTheirNumber) {
  const RandomModel model(14, 3);
  BeamOptions options{.length_penalty = 0, .sampling = DrawOptions{.seed = 4}};
  const OutputStart start{.prefix = {7}, .number = 12};
  std::vector<Tokens> fewer;
  size_t differing = 0;
  for (const int32_t beam : {1, 2, 7, 8, 40}) {
    options.beam = beam;
    std::vector<Tokens> samples;
    for (const Hypothesis& h : Search(model, options, 9, start)) {
      samples.push_back(h.tokens);
      double sum = 0;
      Tokens so_far;
      for (size_t i = 0; i <= h.tokens.size(); ++i) {
        const int32_t token = i < h.tokens.size() ? h.tokens[i] : kEosToken;
        EXPECT_NEAR(h.token_log_probabilities[i], model.Next(so_far)[token], 1e-5);
        sum += h.token_log_probabilities[i];
        so_far.push_back(token);
      }
      EXPECT_EQ(h.score, sum);
      EXPECT_EQ(h.tokens[0], 7);
    }
    ASSERT_EQ(std::ssize(samples), beam);
    std::sort(samples.begin(), samples.end());
    EXPECT_TRUE(std::includes(samples.begin(), samples.end(), fewer.begin(), fewer.end())) << beam << " samples";
    fewer = samples;
    samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
    differing = samples.size();
  }
  EXPECT_GT(differing, 20u);
  options.beam = 3;
  const auto first = [&](const OutputStart& of) { return Search(model, options, 9, of)[0].tokens; };
  EXPECT_NE(first(start), first({.prefix = {7}, .number = 13}));
  // As long as it may be: all samples are the beginning.
  EXPECT_EQ(Search(model, options, 1, start).size(), 3u);
  options.min_length = 6;
  for (const Hypothesis& h : Search(model, options, 9, start)) EXPECT_GE(h.tokens.size(), 6u);
}

TEST(BeamSearchTest, AllIdsOfATokenizerMayBeGeneratedButItsStartAndItsMask) {
  const auto generated = [](const BeamOptions& options) {
    std::set<int32_t> tokens;
    for (int32_t token = 0; token < 8; ++token) {
      if (MayGenerate(options, token, /*may_end=*/false)) tokens.insert(token);
    }
    return tokens;
  };
  EXPECT_THAT(generated({}), ::testing::ElementsAre(3, 4, 5, 6, 7));
  const BeamOptions tokenizer{.beam = 1, .start_token = 4, .end_token = 6, .reserved_ids = false, .mask_token = 7};
  EXPECT_THAT(generated(tokenizer), ::testing::ElementsAre(0, 1, 2, 3, 5));
  BeamSearch search(tokenizer, /*longest=*/5);
  EXPECT_EQ(search.live()[0].token, 4);
  const std::vector<int32_t> tokens = {6, 1, 2};
  const std::vector<float> log_probabilities = {-1, -2, -3};
  const auto advance = [&] {
    search.Advance(std::vector{Continuations{.tokens = tokens, .log_probabilities = log_probabilities}});
  };
  advance();
  EXPECT_EQ(search.live()[0].token, 1) << "one token at least, before the end";
  advance();
  EXPECT_THAT(search.Finished().at(0).tokens, ::testing::ElementsAre(1));
}

// Equal sums: the earlier hypothesis first, of one hypothesis the token with the lower id.
TEST(BeamSearchTest, TiesHaveAnOrder) {
  const std::vector<float> even(3, -1.0f);
  const Tokens falling = {9, 6, 4};
  BeamSearch search({.beam = 3}, 10);
  const Continuations first[] = {{falling, even, -9.0f}};
  search.Advance(first);
  const auto tokens = [&] {
    std::vector<std::pair<int32_t, int32_t>> live;
    for (const BeamSearch::Live& l : search.live()) live.emplace_back(l.parent, l.token);
    return live;
  };
  EXPECT_THAT(tokens(), ::testing::ElementsAre(std::pair(0, 4), std::pair(0, 6), std::pair(0, 9)));
  const Continuations second[] = {{falling, even, -9.0f}, {falling, even, -9.0f}, {falling, even, -9.0f}};
  search.Advance(second);
  EXPECT_THAT(tokens(), ::testing::ElementsAre(std::pair(0, 4), std::pair(0, 6), std::pair(0, 9)));
}

TEST(BeamSearchTest, NothingButNaNEndsWithoutAHypothesis) {
  const Tokens tokens = {5, 4};
  const std::vector<float> nan(2, NAN);
  BeamSearch search({}, 10);
  const Continuations answer[] = {{tokens, nan, NAN}};
  search.Advance(answer);
  EXPECT_TRUE(search.done());
  EXPECT_TRUE(search.Finished().empty());
}

TEST(LongestTranslationTest, FollowsTheLineWithinThePositions) {
  EXPECT_EQ(LongestTranslation({}, 30, 1024), 200);
  EXPECT_EQ(LongestTranslation({}, 30, 128), 127);
  EXPECT_EQ(LongestTranslation({.max_length_a = 1.5, .max_length_b = 10}, 7, 1024), 20);
  EXPECT_EQ(LongestTranslation({.max_length_b = 0}, 7, 1024), 1);
}

TEST(BeamOptionsTest, NamesTheBadField) {
  EXPECT_TRUE(ValidateBeamOptions({}).ok());
  EXPECT_THAT(std::string(ValidateBeamOptions({.beam = 0}).message()), ::testing::HasSubstr("beam = 0"));
  const BeamOptions bad[] = {{.beam = 65},         {.length_penalty = NAN}, {.length_penalty = -1},
                             {.min_length = -1},   {.max_length_a = -1},    {.max_length_b = INFINITY},
                             {.max_length_b = -1}, {.no_repeat_ngram = -1}};
  for (const BeamOptions& options : bad) EXPECT_FALSE(ValidateBeamOptions(options).ok());
  const auto fault = [](const DrawOptions& draw) {
    return std::string(ValidateBeamOptions({.sampling = draw}).message());
  };
  EXPECT_EQ(fault({.temperature = 0.01, .top_k = 3, .top_p = 0.1}), "");
  for (const double temperature : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_THAT(fault({.temperature = temperature}), ::testing::HasSubstr("temperature = "));
  }
  EXPECT_THAT(fault({.top_k = -1}), ::testing::HasSubstr("top-k = -1"));
  for (const double p : {0.0, 1.01, static_cast<double>(NAN)}) {
    EXPECT_THAT(fault({.top_p = p}), ::testing::HasSubstr("top-p = "));
  }
}

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
            const std::vector<int32_t> kept = SortedTokens(KeptTokens({.sampling = options}, logits, may_end));
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
    return SortedTokens(
        KeptTokens({.sampling = DrawOptions{.top_k = top_k, .top_p = top_p}}, logits, /*may_end=*/false));
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
  EXPECT_THAT(KeptTokens({.sampling = DrawOptions()}, std::vector<float>(8, NAN), true), IsEmpty());
}

// Pearson's statistic of 20,000 draws; its 99.9% quantile with 5 degrees of freedom is 20.5, and the seed is fixed.
TEST(TokenDrawTest, DrawsHaveTheProbabilitiesOfTheTemperedKeptTokens) {
  const std::vector<float> logits = {5, 5, -1, 0.5f, 2, 1.5f, -2, 1, 0.5f};
  const DrawOptions options{.temperature = 1.4, .top_k = 6, .seed = 77};
  const std::vector<WeightedToken> kept = KeptTokens({.sampling = options}, logits, /*may_end=*/true);
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
