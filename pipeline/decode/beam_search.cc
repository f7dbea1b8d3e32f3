#include "pipeline/decode/beam_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "runtime/data/packed_batch.h"
#include "runtime/math.h"
#include "runtime/random.h"

namespace hadal {
namespace {

constexpr size_t kFirstSorted = 64;  // top-p seldom needs more tokens

std::vector<WeightedToken> Followers(const BeamOptions& options, std::span<const float> logits, bool may_end) {
  std::vector<WeightedToken> followers;
  followers.reserve(logits.size());
  for (size_t v = 0; v < logits.size(); ++v) {
    const auto token = static_cast<int32_t>(v);
    if (MayGenerate(options, token, may_end) && logits[v] > -INFINITY) followers.push_back({token});
  }
  return followers;
}

}  // namespace

bool MayGenerate(const BeamOptions& options, int32_t token, bool may_end) {
  if (token == options.end_token) return may_end;
  if (token == options.start_token || token == options.mask_token) return false;
  return !options.reserved_ids || (token != kBosToken && token != kPadToken);
}

std::vector<WeightedToken> KeptTokens(const BeamOptions& beam_options, std::span<const float> logits, bool may_end) {
  const DrawOptions& options = *beam_options.sampling;
  std::vector<WeightedToken> kept = Followers(beam_options, logits, may_end);
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
  for (WeightedToken& one : kept) sum += one.weight = Exp((logits[one.token] - best) / options.temperature);
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

float Continuations::LogProbability(int32_t token) const {
  return tokens[0] < 0 ? NAN : (logits[token] - logits[tokens[0]]) + log_probabilities[0];
}

BeamSearch::BeamSearch(const BeamOptions& options, int64_t longest, OutputStart start)
    : options_(options), longest_(longest), start_(std::move(start)) {
  HADAL_CHECK_GE(longest, 1);
  HADAL_CHECK_LE(std::ssize(start_.prefix), longest);
  nodes_.push_back({.token = options.start_token});
  live_.push_back({.parent = 0, .token = options.start_token});
  live_nodes_.push_back(0);
}

void BeamSearch::Offer(int32_t hypothesis, int32_t token, float log_probability) {
  if (!(log_probability > -INFINITY)) return;  // NaN as well
  candidates_.push_back({nodes_[live_nodes_[hypothesis]].sum + log_probability, hypothesis, token, log_probability});
}

bool BeamSearch::wants_logits() const {
  // Any list has 2·beam tokens besides <s>, <pad> and </s>; those that repeat something may leave too few.
  return options_.sampling.has_value() || InPrefix() ||
         std::any_of(repeating_.begin(), repeating_.end(), [](const auto& tokens) { return !tokens.empty(); });
}

std::vector<int32_t> BeamSearch::RepeatingTokens(int32_t node) const {
  std::vector<int32_t> path;
  for (; node > 0; node = nodes_[node].parent) path.push_back(nodes_[node].token);
  std::reverse(path.begin(), path.end());
  std::vector<int32_t> repeating;
  const int64_t before = options_.no_repeat_ngram - 1;
  for (int64_t begin = 0; begin + before < std::ssize(path); ++begin) {
    if (std::equal(path.end() - before, path.end(), path.begin() + begin)) repeating.push_back(path[begin + before]);
  }
  return repeating;
}

bool BeamSearch::MayFollow(int32_t hypothesis, int32_t token) const {
  if (!MayGenerate(options_, token, length_ >= options_.min_length)) return false;
  if (token == options_.end_token) return true;
  return repeating_.empty() || std::ranges::find(repeating_[hypothesis], token) == repeating_[hypothesis].end();
}

void BeamSearch::OfferMostLikely(int32_t hypothesis, const Continuations& next) {
  if (length_ >= longest_) return Offer(hypothesis, options_.end_token, next.end_log_probability);
  const size_t wanted = 2 * static_cast<size_t>(options_.beam), before = candidates_.size();
  size_t listed = 0;
  for (; listed < next.tokens.size() && next.tokens[listed] >= 0; ++listed) {
    const int32_t token = next.tokens[listed];
    if (MayFollow(hypothesis, token)) Offer(hypothesis, token, next.log_probabilities[listed]);
  }
  const size_t offered = candidates_.size() - before;
  if (offered < wanted && !repeating_.empty() && !repeating_[hypothesis].empty()) {
    OfferBehindList(hypothesis, next, wanted - offered);
  }
}

void BeamSearch::OfferBehindList(int32_t hypothesis, const Continuations& next, size_t count) {
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < std::ssize(next.logits); ++token) {
    if (MayFollow(hypothesis, token) && std::ranges::find(next.tokens, token) == next.tokens.end())
      tokens.push_back(token);
  }
  const size_t kept = std::min(tokens.size(), count);
  const auto more_likely = [&](int32_t a, int32_t b) {
    return next.logits[a] != next.logits[b] ? next.logits[a] > next.logits[b] : a < b;
  };
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<int64_t>(kept), tokens.end(), more_likely);
  for (size_t i = 0; i < kept; ++i) Offer(hypothesis, tokens[i], next.LogProbability(tokens[i]));
}

void BeamSearch::OfferDrawn(int32_t hypothesis, const Continuations& next) {
  const bool fork = length_ == std::ssize(start_.prefix);  // into the samples
  std::vector<WeightedToken> kept = {{.token = options_.end_token, .weight = 1}};
  if (length_ < longest_) kept = KeptTokens(options_, next.logits, length_ >= options_.min_length);
  if (kept.empty()) return;
  for (int32_t path = hypothesis; path < (fork ? options_.beam : hypothesis + 1); ++path) {
    const double uniform = DrawUniform(options_.sampling->seed, start_.number, path, static_cast<uint32_t>(length_));
    const int32_t token = TokenAt(kept, uniform);
    Offer(hypothesis, token, next.LogProbability(token));
  }
}

void BeamSearch::Collect(std::span<const Continuations> continuations) {
  candidates_.clear();
  for (int32_t h = 0; h < static_cast<int32_t>(continuations.size()); ++h) {
    const Continuations& next = continuations[h];
    if (InPrefix()) {
      const int32_t token = start_.prefix[length_];
      Offer(h, token, next.LogProbability(token));
    } else if (options_.sampling) {
      OfferDrawn(h, next);
    } else {
      OfferMostLikely(h, next);
    }
  }
  if (!options_.sampling) KeepBest();
}

void BeamSearch::KeepBest() {
  const size_t kept = std::min(candidates_.size(), 2 * static_cast<size_t>(options_.beam));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(kept), candidates_.end(),
                    [](const Candidate& a, const Candidate& b) {
                      if (a.sum != b.sum) return a.sum > b.sum;
                      return a.hypothesis != b.hypothesis ? a.hypothesis < b.hypothesis : a.token < b.token;
                    });
  candidates_.resize(kept);
}

void BeamSearch::Select() {
  const size_t beam = options_.beam;
  std::vector<int32_t> next_nodes;
  live_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const bool ends = candidate.token == options_.end_token;
    if (ends ? i >= beam || finished_.size() == beam : live_.size() == beam) continue;
    const auto node = static_cast<int32_t>(nodes_.size());
    nodes_.push_back({live_nodes_[candidate.hypothesis], candidate.token, candidate.log_probability, candidate.sum});
    if (ends) {
      finished_.push_back(node);
      finished_scores_.push_back(candidate.sum / Pow(static_cast<double>(length_ + 1), options_.length_penalty));
    } else {
      live_.push_back({candidate.hypothesis, candidate.token});
      next_nodes.push_back(node);
    }
  }
  live_nodes_ = std::move(next_nodes);
  repeating_.clear();
  if (options_.no_repeat_ngram == 0) return;
  for (const int32_t node : live_nodes_) repeating_.push_back(RepeatingTokens(node));
}

void BeamSearch::Advance(std::span<const Continuations> continuations) {
  HADAL_CHECK(!done_);
  HADAL_CHECK_EQ(continuations.size(), live_.size());
  Collect(continuations);
  Select();
  ++length_;
  done_ = static_cast<int32_t>(finished_.size()) == options_.beam || live_.empty();
  if (done_) live_.clear();
}

std::vector<Hypothesis> BeamSearch::Finished() const {
  std::vector<size_t> order(finished_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return -finished_scores_[i]; });
  std::vector<Hypothesis> hypotheses;
  for (const size_t f : order) {
    Hypothesis& hypothesis = hypotheses.emplace_back();
    const Node& end = nodes_[finished_[f]];
    hypothesis.log_probability = end.sum;
    hypothesis.score = finished_scores_[f];
    hypothesis.token_log_probabilities.push_back(end.log_probability);
    for (int32_t n = end.parent; n > 0; n = nodes_[n].parent) {
      hypothesis.tokens.push_back(nodes_[n].token);
      hypothesis.token_log_probabilities.push_back(nodes_[n].log_probability);
    }
    std::reverse(hypothesis.tokens.begin(), hypothesis.tokens.end());
    std::reverse(hypothesis.token_log_probabilities.begin(), hypothesis.token_log_probabilities.end());
  }
  return hypotheses;
}

}  // namespace hadal
