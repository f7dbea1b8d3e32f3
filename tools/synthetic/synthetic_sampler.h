// Draws sentences of the synthetic corpus: their kind and their words, so that the words fit each other by the
// lexicon's classes.
//
// Sentence `index` is a function of (seed, index) alone: its draw k is the first word of
//   Philox(key = seed; counter = {k, RandomSite::kSampling | 1 << 3, index low, index high}).
// Avoids what one language leaves ambiguous and the other must express: "you" is du; past tenses that look like the
// present ("read", "put") are not drawn, nor is the past tense of du.
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "tools/synthetic/synthetic_clause.h"

namespace hadal {

Sentence DrawSentence(uint64_t seed, uint64_t index);

}  // namespace hadal
