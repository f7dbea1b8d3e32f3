// Draws a token from the model's distribution: temperature, then top-k, then top-p.
//
//   w(v) = exp((z_v − z_best) / temperature)           over the tokens that may follow
//   top-k   keeps the k largest z
//   top-p   of these, keeps the most likely ones up to and with the token at which their sum reaches p of the whole
//   P(v) = w(v) / Σ w  of the kept
// Order by likelihood: larger logit first; ties: lower token first. So both sets are unique.
// Numerics: double. The kept weights are added in one order, ascending tokens without a limit and likelihood with one,
// and a draw is the first token whose running sum exceeds u·Σ. So a draw is a function of the row's logits and u.
// Cost: one read of the row, and an exp for each token that top-k leaves. Allocates vectors of the row's length.
// Source: fairseq's Sampling (fairseq/search.py); Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p).
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/options/decoder_options.h"

namespace hadal {

struct WeightedToken {
  int32_t token = 0;
  double weight = 0;  // ≥ 0, of the most likely token 1
};

// Returns the tokens that may be drawn. `logits`: of all tokens. <s> and <pad> are never kept, </s> only if `may_end`,
// and a logit of -inf or NaN neither. Empty if none is left.
std::vector<WeightedToken> KeptTokens(const DrawOptions& options, std::span<const float> logits, bool may_end);

// Returns the token at `uniform`, in [0, 1), of their distribution.  REQUIRES: KeptTokens' result, not empty.
int32_t TokenAt(std::span<const WeightedToken> kept, double uniform);

// Returns the random number of one draw, uniform in [0, 1) with 53 bits, from Philox (runtime/random.h): key = seed,
// counter = (position, site kSampling, sentence, path). No two draws of a seed share a counter.
double DrawUniform(uint64_t seed, uint32_t sentence, uint32_t path, uint32_t position);

}  // namespace hadal
