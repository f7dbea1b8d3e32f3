// Characters and white space of UTF-8 text, as Python sees them: scores equal sacreBLEU's only if both split alike.
//
// White space is what Python's str.isspace accepts: Unicode's bidirectional types WS, B, S and category Zs. (A no-break
// space is white space, U+200B is not.) A byte that is not part of valid UTF-8 counts as a letter.
// Detects scripts without spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer. BLEU's tokenizer 13a
// (bleu.h) splits only at spaces and ASCII punctuation, so whole sentences become words and the score is 0 or
// meaningless; WER likewise.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace hadal {

// Bytes of the white-space character at the start of `text`, or 0.
size_t LeadingSpaceBytes(std::string_view text);

// Returns `text` without trailing white space.
std::string_view StripTrailingSpace(std::string_view text);

// The parts of `text` between white space, none of them empty: Python's str.split. They point into `text`.
std::vector<std::string_view> SplitAtSpace(std::string_view text);

// Removes the first character of `text` and returns its code point. REQUIRES: text is not empty.
uint32_t TakeCharacter(std::string_view& text);

// Whether more than half of the characters of `lines` (UTF-8) belong to scripts without spaces between words, with more
// than five characters on average between two spaces. False for text that has been segmented into words or characters.
bool IsUnspaced(absl::Span<const std::string> lines);

// The warnings about references in such scripts.
inline constexpr char kUnspacedBleu[] =
    "the references put no spaces between words (Chinese, Japanese, Thai …), so tokenizer 13a takes a sentence for one "
    "word, and this BLEU is near 0 or meaningless. Use the tokenizer zh or char: `hadal bleu --tokenize`, "
    "validation.bleu_tokenizer in a config";
inline constexpr char kUnspacedWer[] =
    "the references put no spaces between words (Chinese, Japanese, Thai …), so a sentence counts as one word. `hadal "
    "wer --characters` and `hadal chrf` need no words";

}  // namespace hadal
