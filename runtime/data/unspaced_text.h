// Text of scripts that put no spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer. BLEU's tokenizer 13a (tokenize_13a.h) cuts at
// spaces and at ASCII punctuation only, so that whole sentences are its words there: the score is 0, or says nothing.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace hadal {

// Whether more than half of the characters of `lines` (UTF-8) are of such scripts, and stand together: more than five of them to what lies
// between two spaces, on average. Text that was cut into words or characters before is not.
bool IsUnspaced(absl::Span<const std::string> lines);

// What to say of BLEU where the references are such text.
inline constexpr char kUnspacedBleu[] =
    "the references put no spaces between words (Chinese, Japanese, Thai …), and tokenizer 13a takes what stands "
    "together for one word: this BLEU "
    "is near 0 or says nothing. Give the translations to sacrebleu --tokenize zh, ja-mecab or char";

}  // namespace hadal
