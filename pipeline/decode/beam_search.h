// BeamSearch searches the translations of one sentence, or draws samples of them. It does not run the model: it takes
// the model's log-probabilities of each step and returns the hypotheses to extend.
//
//   score(y) = Σ_t log p(y_t | y_<t, source) / |y|^length_penalty,  </s> counted in the sum and in |y|
// A step (fairseq's, so that scores and choices agree with its generator):
//   1. every live hypothesis contributes its best continuations; the 2·beam best sums of all are candidates;
//   2. candidates that end in </s> and are among the first `beam` are finished; others that end in </s> are dropped;
//   3. the first `beam` candidates that do not end in </s> become the live hypotheses.
// The sentence is done when `beam` hypotheses are finished, or at its longest length, where only </s> may follow.
// </s> here means options.end_token. Never generated: the mask token, a start token that is not the end token, and
// <pad> and <s> if their ids are reserved. Ties go to the earlier hypothesis, then to the lower token. Sums in
// double.
// A continuation whose log-probability is -inf or NaN is not a candidate; if the model returns only such values, the
// search ends without a hypothesis.
//
// Forced beginning (OutputStart::prefix): as long as the output is shorter than the prefix, the prefix's next token is
// the only candidate. Forced tokens count in the sum and in |y| (as fairseq's prefix_tokens do) and towards
// BeamOptions::min_length and the longest length.
// No repeated n-grams (options.no_repeat_ngram = n): a token that would end a sequence of n tokens which the hypothesis
// has already is not a candidate. Forced tokens count as part of sequences, but are never excluded; nor is </s>. (As
// fairseq's and transformers' no_repeat_ngram_size, which may also exclude forced tokens.)
// Sampling (options.sampling): after the forced beginning, each of `beam` paths draws one token a step (KeptTokens)
// until it has drawn </s> or is at the longest length. A draw depends only on the seed, OutputStart::number, the
// position and the number of unfinished paths before its path, not on later paths: paths 0 to n − 1 are the same for
// every `beam` ≥ n. Scores are the model's: log p without temperature, top-k and top-p.
// Source: fairseq's SequenceGenerator and BeamSearch; length penalty as Wu et al. 2016 section 7 without its +5.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/options/decoder_options.h"

namespace hadal {

// KeptTokens and TokenAt draw a token from the model's distribution: temperature, then top-k, then top-p.
//
//   w(v) = exp((z_v − z_best) / temperature)           z: the logits of the tokens that may follow; z_best: the largest
//   top-k   keeps the k largest z
//   top-p   of these, keeps the most likely ones up to and with the token at which their sum reaches p of the whole
//   P(v) = w(v) / Σ w  of the kept
// Order by likelihood: larger logit first; ties: lower token first. So both sets are unique.
// Numerics: double. The kept weights are added in ascending order of tokens if neither top-k nor top-p is set, else in
// order of likelihood; a draw is the first token whose running sum exceeds u·Σ w, u being the random number. So a draw
// is a function of the row's logits and u.
// Cost: one read of the row, and an exp for each token that top-k leaves. Allocates vectors of the row's length.
// Source: fairseq's Sampling (fairseq/search.py); Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p).
// Thread safety: pure functions.
struct WeightedToken {
  int32_t token = 0;
  double weight = 0;  // w(token), in [0, 1]; 1 for the most likely token
};

// Whether a token may be generated; </s> only if `may_end`.
bool MayGenerate(const BeamOptions& options, int32_t token, bool may_end);

// Returns the tokens that may be drawn by options.sampling. `logits`: of all tokens. Those that MayGenerate excludes
// are never kept, nor are those with a logit of -inf or NaN. Empty if none is left. REQUIRES: options.sampling.
std::vector<WeightedToken> KeptTokens(const BeamOptions& options, std::span<const float> logits, bool may_end);

// Returns the token that the random number `uniform`, in [0, 1), selects from P. `kept`: a result of KeptTokens.
// REQUIRES: not empty.
int32_t TokenAt(std::span<const WeightedToken> kept, double uniform);

// Returns the random number of one draw, uniform in [0, 1) with 53 bits, from Philox (runtime/random.h): key = seed,
// counter = (position, site kSampling, sentence, path). `sentence`: OutputStart::number. No two draws with one seed
// have the same counter.
double DrawUniform(uint64_t seed, uint32_t sentence, uint32_t path, uint32_t position);

// A finished translation.
struct Hypothesis {
  std::vector<int32_t> tokens;                 // without </s>
  std::vector<float> token_log_probabilities;  // of each token and of </s>: tokens.size() + 1
  double log_probability = 0;                  // their sum
  double score = 0;
};

struct OutputStart {
  std::vector<int32_t> prefix;  // the forced beginning of one sentence's output
  uint32_t number = 0;          // the sentence's number in the counter of its random numbers, for sampling
};

// The model's output for one live hypothesis: its possible next tokens.
struct Continuations {
  std::span<const int32_t> tokens;           // most likely first; an entry of -1 ends the list
  std::span<const float> log_probabilities;  // of `tokens`
  float end_log_probability = 0;             // of </s>
  std::span<const float> logits = {};        // of all tokens; read only if wants_logits()

  // Returns the log-probability of any token. REQUIRES: logits.
  float LogProbability(int32_t token) const;
};

class BeamSearch {
 public:
  // `longest`: LongestTranslation of this sentence. REQUIRES: ≥ 1 and ≥ the number of forced tokens.
  BeamSearch(const BeamOptions& options, int64_t longest, OutputStart start = {});

  // A hypothesis to extend: feed `token` to the model at position `length()`, after the path of `parent` in the
  // previous step.
  struct Live {
    int32_t parent = 0;  // index in the previous step's live(); 0 at the first step
    int32_t token = 0;   // its newest token; </s> at the first step
  };
  const std::vector<Live>& live() const { return live_; }
  // Number of tokens of every live hypothesis, without the leading </s>.
  int64_t length() const { return length_; }
  bool done() const { return done_; }
  // Whether the next Advance reads Continuations::logits.
  bool wants_logits() const;

  // Takes the model's output for every live hypothesis.  REQUIRES: !done(), one entry for each, in the order of live().
  void Advance(std::span<const Continuations> continuations);

  // The finished hypotheses, best score first; equal scores in the order they finished. At most `beam`.
  std::vector<Hypothesis> Finished() const;

 private:
  // A token in the tree of all hypotheses.
  struct Node {
    int32_t parent = -1;
    int32_t token = 0;
    float log_probability = 0;
    double sum = 0;
  };
  struct Candidate {
    double sum = 0;
    int32_t hypothesis = 0;
    int32_t token = 0;
    float log_probability = 0;
  };

  bool InPrefix() const { return length_ < std::ssize(start_.prefix); }
  // The tokens that must not follow a live hypothesis, by options.no_repeat_ngram.
  std::vector<int32_t> RepeatingTokens(int32_t node) const;
  bool MayFollow(int32_t hypothesis, int32_t token) const;
  void Offer(int32_t hypothesis, int32_t token, float log_probability);
  void OfferMostLikely(int32_t hypothesis, const Continuations& next);
  // Offers the `count` most likely tokens that are not in next.tokens and may follow.
  void OfferBehindList(int32_t hypothesis, const Continuations& next, size_t count);
  void OfferDrawn(int32_t hypothesis, const Continuations& next);
  void Collect(std::span<const Continuations> continuations);
  void KeepBest();
  void Select();

  BeamOptions options_;
  int64_t longest_;
  OutputStart start_;
  int64_t length_ = 0;
  bool done_ = false;
  std::vector<Node> nodes_;
  std::vector<Live> live_;
  std::vector<int32_t> live_nodes_;
  std::vector<std::vector<int32_t>> repeating_;  // of each live hypothesis; empty without no_repeat_ngram
  std::vector<Candidate> candidates_;
  std::vector<int32_t> finished_;  // nodes of </s>
  std::vector<double> finished_scores_;
};

}  // namespace hadal
