#include "tools/translate/forced_tokens.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/data/language_tags.h"

namespace hadal {
namespace {

bool HasUnknown(const std::vector<int32_t>& tokens) {
  return std::find(tokens.begin(), tokens.end(), kUnknownToken) != tokens.end();
}

// The tag that the text begins with; empty: none.
std::string_view FirstTag(const Vocabulary& vocabulary, std::string_view text) {
  const std::string_view word = text.substr(0, text.find(' '));
  return IsLanguageTag(word) && vocabulary.Id(word) != kUnknownToken ? word : std::string_view();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ForcedTokens(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<int32_t> tokens;
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  for (std::string_view tag; !(tag = FirstTag(vocabulary, text)).empty();) {
    tokens.push_back(vocabulary.Id(tag));
    text.remove_prefix(std::min(text.size(), tag.size() + 1));
  }
  const std::vector<int32_t> encoded = vocabulary.Encode(text);
  if (HasUnknown(encoded)) {
    const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
    const auto word = std::find_if(words.begin(), words.end(),
                                   [&](const std::string& one) { return HasUnknown(vocabulary.Encode(one)); });
    return absl::InvalidArgumentError(absl::StrCat("the vocabulary lacks a token of \"",
                                                   word == words.end() ? std::string(text) : *word,
                                                   "\", so no output can begin with it"));
  }
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  return tokens;
}

}  // namespace hadal
