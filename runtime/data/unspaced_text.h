// Text in scripts that put no spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer. BLEU's tokenizer 13a
// (tokenize_13a.h) cuts only at spaces and ASCII punctuation. So whole sentences become words, and the score is 0 or
// says nothing.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace hadal {

// Whether more than half of the characters of `lines` (UTF-8) are of such scripts, and on average more than five of
// them are between two spaces. Text that has been cut into words or characters is not.
bool IsUnspaced(absl::Span<const std::string> lines);

// A warning about BLEU for references of such text.
inline constexpr char kUnspacedBleu[] =
    "the references put no spaces between words (Chinese, Japanese, Thai …), and tokenizer 13a takes what stands "
    "together for one word: this BLEU "
    "is near 0 or says nothing. Give the translations to sacrebleu --tokenize zh, ja-mecab or char";

}  // namespace hadal
