#include "runtime/data/language_tags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr size_t kLongestCode = 32;

bool IsCode(std::string_view text) {
  return !text.empty() && text.size() <= kLongestCode &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

// Field 1 of a serialised ModelProto: a SentencePiece { piece = 1: `text`; score = 2: 0; type = 3: CONTROL (3) }.
// REQUIRES: fewer than 118 bytes.
std::string ControlPiece(const std::string& text) {
  HADAL_CHECK_LT(text.size(), 118u);
  const std::string piece = absl::StrCat("\x0A", std::string(1, static_cast<char>(text.size())), text) +
                            std::string("\x15\0\0\0\0\x18\x03", 7);
  return absl::StrCat("\x0A", std::string(1, static_cast<char>(piece.size())), piece);
}

}  // namespace

absl::StatusOr<Direction> ParseDirection(std::string_view text) {
  const size_t dash = text.find('-');
  const std::string_view source = text.substr(0, dash);
  const std::string_view target = dash == std::string_view::npos ? "" : text.substr(dash + 1);
  if (IsCode(source) && IsCode(target) && source != target) return Direction{std::string(source), std::string(target)};
  const std::string shown(text.substr(0, 2 * kLongestCode));
  if (IsCode(source) && source == target) {
    return InvalidArgumentError("\"", shown,
                                "\" has one language; give the sides different names, as \"en-en_simple\"");
  }
  return InvalidArgumentError(
      "\"", shown,
      "\" is no direction; give two languages as \"en-de\" or \"eng_Latn-deu_Latn\": letters, digits and \"_\"");
}

std::string LanguageTag(std::string_view language) { return absl::StrCat("__", std::string(language), "__"); }

bool IsReservedTag(std::string_view token) { return token.starts_with("__reserved:") && token.ends_with("__"); }

bool IsLanguageTag(std::string_view token) {
  return token.size() > 4 && token.starts_with("__") && token.ends_with("__") && !IsReservedTag(token);
}

std::string EncoderTag(LanguageTags tags, const Direction& direction) {
  if (tags == LanguageTags::kNone) return "";
  return LanguageTag(tags == LanguageTags::kDeepnet ? direction.target : direction.source);
}

std::string DecoderTag(LanguageTags tags, const Direction& direction) {
  return tags == LanguageTags::kM2m100 ? LanguageTag(direction.target) : "";
}

absl::StatusOr<Vocabulary> AddLanguageTags(const Vocabulary& vocabulary, const std::vector<std::string>& languages,
                                           int32_t reserved) {
  if (vocabulary.kind() != VocabularyKind::kSentencePiece) {
    return InvalidArgumentError(
        "language tags need a SentencePiece vocabulary: a dictionary's tokens are words of the text");
  }
  std::string contents = vocabulary.contents();
  std::vector<std::string> free;  // reserved tags
  int32_t next = 1;               // their next number
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& token = vocabulary.Token(id);
    if (!IsReservedTag(token)) continue;
    free.push_back(token);
    int32_t number = 0;
    if (absl::SimpleAtoi(token.substr(token.find(':') + 1, token.size() - token.find(':') - 3), &number)) {
      next = std::max(next, number + 1);
    }
  }
  for (const std::string& language : languages) {
    const std::string tag = LanguageTag(language);
    if (vocabulary.Id(tag) == kUnknownToken && !free.empty()) {
      contents = absl::StrReplaceAll(contents, {{ControlPiece(free.front()), ControlPiece(tag)}});
      free.erase(free.begin());
    } else if (vocabulary.Id(tag) == kUnknownToken) {
      contents += ControlPiece(tag);
    } else if (const std::vector<int32_t> ids = vocabulary.Encode(tag);
               std::find(ids.begin(), ids.end(), vocabulary.Id(tag)) != ids.end()) {
      return InvalidArgumentError("in the vocabulary ", tag,
                                  " is a piece of text, so that text could become a language tag; give one in which it "
                                  "is a control symbol, or none of it");
    }
  }
  for (auto have = static_cast<int32_t>(free.size()); have < reserved; ++have) {
    contents += ControlPiece(LanguageTag(absl::StrCat("reserved:", next++)));
  }
  return Vocabulary::Parse(std::move(contents), "the vocabulary with language tags");
}

absl::StatusOr<Vocabulary> AddMaskToken(const Vocabulary& vocabulary) {
  if (vocabulary.Id(kMaskToken) != kUnknownToken) return vocabulary;
  const std::string token(kMaskToken);
  const bool pieces = vocabulary.kind() == VocabularyKind::kSentencePiece;
  std::string contents = vocabulary.contents();
  if (!pieces && !contents.empty() && contents.back() != '\n') contents += '\n';
  contents += pieces ? ControlPiece(token) : token + " 1\n";
  return Vocabulary::Parse(std::move(contents), "the vocabulary with <mask>");
}

}  // namespace hadal
