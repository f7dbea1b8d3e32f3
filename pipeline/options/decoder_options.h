// The options of translation, and the buffer sizes planned from them (decode_capacity.h).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace hadal {

// How a token is drawn from the model's distribution (decode/beam_search.h).
struct DrawOptions {
  double temperature = 1;  // > 0
  int32_t top_k = 0;       // the k most likely tokens; 0: all
  double top_p = 1;        // the most likely tokens that together have this probability, in (0, 1]
  uint64_t seed = 1;
};

// Options of the search over one sentence (decode/beam_search.h).
struct BeamOptions {
  int32_t beam = 4;             // hypotheses; when sampling: samples
  double length_penalty = 0.6;  // 0: plain sums; higher favours longer translations
  double max_length_a = 0;      // longest translation without </s>: a·(source tokens with </s>) + b
  double max_length_b = 200;
  int32_t min_length = 1;                    // least number of tokens before </s>
  int32_t no_repeat_ngram = 0;               // n: no sequence of n tokens occurs twice; 0: no limit; not with sampling
  std::optional<DrawOptions> sampling = {};  // empty: beam search
  // As in ModelOptions.
  int32_t start_token = 2;
  int32_t end_token = 2;
  bool reserved_ids = true;
  int32_t mask_token = -1;
};

struct DecoderOptions {
  BeamOptions beam;
  int64_t cache_limit_bytes = 0;  // for a rank's caches; 0: 512 MiB, or more if one sentence needs it
  int32_t longest_source = 512;   // longest source accepted, with </s>; at most the model's positions
  int32_t sentences = 0;          // most sentences translated together per lane; 0: as many as are efficient
  bool graphs = true;             // on a device, launch steps and encodings as graphs: the same bits
  bool prefixes = false;          // outputs may have forced beginnings (decode/beam_search.h)
};

// The sizes of decoding's buffers. A lane is a group of sentences that are translated together.
struct DecodeCapacity {
  int32_t lanes = 1;           // lanes in progress at once
  int32_t sentences = 1;       // most sentences of a lane
  int64_t rows = 0;            // of a lane's step: sentences · beam, padded; on a device every step has this many
  int64_t source_rows = 0;     // of a lane's sources together, padded; on a device every lane has this many
  int64_t longest_source = 0;  // rows of one sentence, with </s>; 1 (unused) for a language model
  int64_t longest_path = 0;    // positions of one hypothesis, with the leading </s>
  int64_t cache_rows = 0;      // of a lane (decode_capacity.h); row 0 is for padding rows
};

// Errors: InvalidArgument naming the field, its value and the allowed range.
absl::Status ValidateBeamOptions(const BeamOptions& options);

// Returns the most tokens, without </s>, of a translation of a source of `source_rows` tokens (with </s>; 0: a
// language model). One of `max_positions` stays free for the translation's </s>.
int64_t LongestTranslation(const BeamOptions& options, int64_t source_rows, int64_t max_positions);

// Returns the number of continuations that the model must return for each hypothesis: 2·beam, plus the tokens that
// the search may exclude (<s>, <pad>, </s> and, if there is one, the mask token). Sampling reads the logits instead,
// and of the continuations only the first: its log-probability and logit give the log-probabilities of all tokens.
inline int32_t CandidatesPerHypothesis(const BeamOptions& options) {
  return options.sampling ? 1 : 2 * options.beam + (options.mask_token < 0 ? 3 : 4);
}

// Whether a search reads the logits of all tokens (BeamSearch::wants_logits).
inline bool ReadsLogits(const DecoderOptions& options) {
  return options.prefixes || options.beam.sampling.has_value() || options.beam.no_repeat_ngram > 0;
}

}  // namespace hadal
