// Detects scripts without spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer. BLEU's tokenizer 13a
// (bleu_tokenizer.h) splits only at spaces and ASCII punctuation, so whole sentences become words and the score is 0 or
// meaningless; WER likewise.
// Thread safety: pure functions.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace hadal {

// Whether more than half of the characters of `lines` (UTF-8) belong to such scripts, with more than five of them on
// average between two spaces. False for text that has been segmented into words or characters.
bool IsUnspaced(absl::Span<const std::string> lines);

// The warnings about such references.
inline constexpr char kUnspacedBleu[] =
    "the references put no spaces between words (Chinese, Japanese, Thai …), so tokenizer 13a takes a sentence for one "
    "word, and this BLEU is near 0 or meaningless. Use the tokenizer zh or char: `hadal bleu --tokenize`, "
    "validation.bleu_tokenizer in a config";
inline constexpr char kUnspacedWer[] =
    "the references put no spaces between words (Chinese, Japanese, Thai …), so a sentence counts as one word. `hadal "
    "wer --characters` and `hadal chrf` need no words";

}  // namespace hadal
