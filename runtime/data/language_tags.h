// Language tags: the tokens `__de__`, `__zh__`, … from which a model for several languages learns the languages of a
// pair. Their positions:
//
//   preset          before the source        first target token
//   none            -                        -
//   deepnet         the target's language    -                       (DeepNet on OPUS-100, 2203.00555, section 4)
//   m2m100, nllb    the source's language    the target's language   (fairseq: --encoder-langtok src --decoder-langtok)
//
// A tag is one id, after the vocabulary's other ids. In a SentencePiece model it is a control piece at the end of the
// file: text never becomes a tag, decoded text never has one, and every SentencePiece program reads the file.
// The mask token of masked-language modelling is added in the same way.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/choice_words.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

enum class LanguageTags { kNone, kDeepnet, kM2m100 };
inline constexpr Word<LanguageTags> kLanguageTags[] = {{"none", LanguageTags::kNone},
                                                       {"deepnet", LanguageTags::kDeepnet},
                                                       {"m2m100", LanguageTags::kM2m100},
                                                       {"nllb", LanguageTags::kM2m100}};

// The languages of a pair; empty: not known.
struct Direction {
  std::string source;
  std::string target;
};

// Reads "en-de": two codes of letters, digits and "_", at most 32 characters each. Errors: InvalidArgument.
absl::StatusOr<Direction> ParseDirection(std::string_view text);

// "__de__"
std::string LanguageTag(std::string_view language);
// Whether a token is a tag that no language has yet, `__reserved:1__`, …
bool IsReservedTag(std::string_view token);
// Whether a token has the form of a language's tag.
bool IsLanguageTag(std::string_view token);

// Returns the tag before a pair's source; "": none.
std::string EncoderTag(LanguageTags tags, const Direction& direction);
// Returns the first target token if it is a tag; "": none.
std::string DecoderTag(LanguageTags tags, const Direction& direction);

// Returns `vocabulary` with the tags of `languages` that it lacks, in the given order: each takes the id of the first
// reserved tag, or the next id behind the others. Then appends reserved tags until there are `reserved`.
// Errors: InvalidArgument for a dictionary, whose tokens are words of the text, and for a model in which a tag is a
// piece of text.
absl::StatusOr<Vocabulary> AddLanguageTags(const Vocabulary& vocabulary, const std::vector<std::string>& languages,
                                           int32_t reserved = 0);

inline constexpr std::string_view kMaskToken = "<mask>";
// Returns `vocabulary` with the mask token as its last id, as fairseq, unless it has one: a control piece of a
// SentencePiece model, a line of a dictionary.
absl::StatusOr<Vocabulary> AddMaskToken(const Vocabulary& vocabulary);

}  // namespace hadal
