#include "runtime/data/vocabulary.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/data/vocabulary_model.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
// A serialised model starts with its first field: repeated message 1, key byte (1 << 3) | 2. In a dictionary this byte
// would be an empty first line.
constexpr char kModelFirstByte = 0x0A;
constexpr char kWordStart[] = "\xE2\x96\x81";  // U+2581, SentencePiece's space

void StripSpaces(std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  text.erase(0, first);  // npos: everything
  text.erase(text.find_last_not_of(' ') + 1);
}

std::string UndoBpe(std::string text) {
  text.push_back(' ');
  text = absl::StrReplaceAll(text, {{"@@ ", ""}});
  StripSpaces(text);
  return text;
}

std::string UndoSentencePiece(const std::string& text) {
  std::string plain = absl::StrReplaceAll(text, {{" ", ""}, {kWordStart, " "}});
  StripSpaces(plain);
  return plain;
}

}  // namespace

TokenTable::TokenTable() {
  for (const char* token : {"<s>", "<pad>", "</s>", "<unk>"}) Add(token);
}

bool TokenTable::Add(std::string token, bool replace) {
  const auto [place, is_new] = ids_.try_emplace(token, size());
  if (!is_new && replace) place->second = size();
  tokens_.push_back(std::move(token));
  return is_new;
}

const std::string& TokenTable::Token(int32_t id) const {
  HADAL_CHECK_GE(id, 0);
  HADAL_CHECK_LT(id, size());
  return tokens_[static_cast<size_t>(id)];
}

int32_t TokenTable::Id(std::string_view token) const {
  const auto place = ids_.find(token);
  return place == ids_.end() ? kUnknownToken : place->second;
}

VocabularyModel::VocabularyModel(TokenTable table, std::string contents)
    : table_(std::move(table)), contents_(std::move(contents)), crc32c_(Crc32c(contents_.data(), contents_.size())) {}

std::string JoinWithSpaces(const TokenTable& table, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (TokenTable::IsSpecial(id) && id != kUnknownToken) continue;
    if (!text.empty()) text.push_back(' ');
    text.append(table.Token(id));
  }
  return text;
}

Vocabulary::Vocabulary(std::shared_ptr<const VocabularyModel> model) : model_(std::move(model)) {}

absl::StatusOr<Vocabulary> Vocabulary::Load(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(std::string contents, ReadFile(path, kMaxFileBytes));
  return Parse(std::move(contents), path);
}

absl::StatusOr<Vocabulary> Vocabulary::Parse(std::string contents, const std::string& name) {
  if (contents.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is empty; a vocabulary is a SentencePiece model or a dictionary with one 'token count' per line"));
  }
  const bool is_model = contents[0] == kModelFirstByte;
  HADAL_ASSIGN_OR_RETURN(
      std::unique_ptr<const VocabularyModel> model,
      is_model ? ParseSentencePiece(std::move(contents), name) : ParseDictionary(std::move(contents), name));
  return Vocabulary(std::move(model));
}

absl::StatusOr<Vocabulary> Vocabulary::FromTokens(const std::vector<std::string>& tokens) {
  return Parse(absl::StrJoin(tokens, "",
                             [](std::string* out, const std::string& token) { absl::StrAppend(out, token, " 1\n"); }),
               "the list of tokens");
}

VocabularyKind Vocabulary::kind() const { return model_->kind(); }
int32_t Vocabulary::size() const { return model_->table().size(); }
std::vector<int32_t> Vocabulary::Encode(std::string_view text) const { return model_->Encode(text); }
const std::string& Vocabulary::Token(int32_t id) const { return model_->table().Token(id); }
int32_t Vocabulary::Id(std::string_view token) const { return model_->table().Id(token); }
const std::string& Vocabulary::contents() const { return model_->contents(); }
uint32_t Vocabulary::crc32c() const { return model_->crc32c(); }

std::string Vocabulary::Decode(std::span<const int32_t> ids, PieceJoining joining) const {
  switch (joining) {
    case PieceJoining::kSpaces:
      return JoinWithSpaces(model_->table(), ids);
    case PieceJoining::kBpe:
      return UndoBpe(JoinWithSpaces(model_->table(), ids));
    case PieceJoining::kSentencePiece:
      return UndoSentencePiece(JoinWithSpaces(model_->table(), ids));
    case PieceJoining::kDefault:
      break;
  }
  return model_->Decode(ids);
}

std::string_view Vocabulary::extension() const { return kind() == VocabularyKind::kSentencePiece ? ".model" : ".txt"; }

absl::Status Vocabulary::Save(const std::string& path) const { return ReplaceFile(path, contents(), "partial"); }

}  // namespace hadal
