// Draws sentences of the synthetic corpus: which kind, which words, with the agreement of meaning that the lexicon's
// classes give.
//
// Sentence `index` is a function of (seed, index) alone: draw k of it is the first word of
//   Philox(key = seed; counter = {k, RandomSite::kSampling | 1 << 3, index low, index high}).
// What one language could not tell apart and the other must say is avoided: "you" is du; past tenses that look like the
// present ("read", "put") are not drawn; neither is the past of du.
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "tools/synthetic/synthetic_clause.h"

namespace hadal {

Sentence DrawSentence(uint64_t seed, uint64_t index);

}  // namespace hadal
