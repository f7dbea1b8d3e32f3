#include "runtime/data/vocabulary.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/data/piece_model.h"
#include "runtime/data/tokenizer_file.h"
#include "runtime/data/unicode_text.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {

// The implementation behind Vocabulary (vocabulary.h). Internal to runtime/data; other code includes vocabulary.h.
//
// TokenTable maps token ids to strings and back. VocabularyModel is the base class of the two kinds of vocabulary,
// SentencePiece models and fairseq dictionaries; each has a derived class with its own segmentation of text
// (ParseSentencePiece, ParseDictionary).
// Thread safety: const methods may be called by any thread.
// Ids ↔ strings, beginning with the four special tokens.
class TokenTable {
 public:
  TokenTable() {
    for (const char* token : {"<s>", "<pad>", "</s>", "<unk>"}) Add(token);
  }
  // Without the special tokens. Empty strings are numbers without a token.
  explicit TokenTable(std::vector<std::string> tokens) {
    for (std::string& token : tokens) Add(std::move(token));
  }

  // Assigns the next id to `token`. If the string already has an id, Id() keeps returning that one, unless `replace`.
  // Returns whether the string was new.
  bool Add(std::string token, bool replace = false) {
    const auto [place, is_new] = ids_.try_emplace(token, size());
    if (!is_new && replace) place->second = size();
    tokens_.push_back(std::move(token));
    return is_new;
  }

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const std::string& Token(int32_t id) const {
    HADAL_CHECK_GE(id, 0);
    HADAL_CHECK_LT(id, size());
    return tokens_[static_cast<size_t>(id)];
  }
  int32_t Id(std::string_view token) const {
    const auto place = ids_.find(token);
    return place == ids_.end() ? kUnknownToken : place->second;
  }
  static bool IsSpecial(int32_t id) { return id < kSpecialTokens; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

// REQUIRES of derived classes: const methods are thread-safe.
class VocabularyModel {
 public:
  VocabularyModel(TokenTable table, std::string contents)
      : table_(std::move(table)), contents_(std::move(contents)), crc32c_(Crc32c(contents_.data(), contents_.size())) {}
  virtual ~VocabularyModel() = default;
  VocabularyModel(const VocabularyModel&) = delete;
  VocabularyModel& operator=(const VocabularyModel&) = delete;

  virtual VocabularyKind kind() const = 0;
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  // PieceJoining::kDefault. `ids` may hold special tokens.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;

  const TokenTable& table() const { return table_; }
  const std::string& contents() const { return contents_; }
  uint32_t crc32c() const { return crc32c_; }

 private:
  TokenTable table_;
  std::string contents_;
  uint32_t crc32c_;
};

absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseDictionary(std::string contents, const std::string& name);
absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseSentencePiece(std::string contents,
                                                                          const std::string& name);
absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseTokenizer(std::string contents, const std::string& name);

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

// Joins the tokens with spaces, without `<s>`, `<pad>` and `</s>`.
std::string JoinWithSpaces(const TokenTable& table, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (TokenTable::IsSpecial(id) && id != kUnknownToken) continue;
    if (!text.empty()) text.push_back(' ');
    text.append(table.Token(id));
  }
  return text;
}

std::string UndoSentencePiece(const std::string& text) {
  std::string plain = absl::StrReplaceAll(text, {{" ", ""}, {kWordStart, " "}});
  StripSpaces(plain);
  return plain;
}

}  // namespace

Vocabulary::Vocabulary(std::shared_ptr<const VocabularyModel> model) : model_(std::move(model)) {}

absl::StatusOr<Vocabulary> Vocabulary::Load(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(std::string contents, ReadFile(path, kMaxFileBytes));
  return Parse(std::move(contents), path);
}

absl::StatusOr<Vocabulary> Vocabulary::Parse(std::string contents, const std::string& name) {
  if (contents.empty()) {
    return InvalidArgumentError(
        name, " is empty; a vocabulary is a SentencePiece model or a dictionary with one 'token count' per line");
  }
  // A dictionary may begin with a token such as "{"; its lines end in a count.
  const std::string_view line = std::string_view(contents).substr(0, contents.find('\n'));
  const size_t digits = line.find_last_not_of("0123456789\r");
  const bool counts = digits != std::string_view::npos && digits + 1 < line.size() && line[digits] == ' ';
  const bool is_json = contents[0] == '{' && !counts;
  const auto parse = contents[0] == kModelFirstByte ? ParseSentencePiece : is_json ? ParseTokenizer : ParseDictionary;
  HADAL_ASSIGN_OR_RETURN(std::unique_ptr<const VocabularyModel> model, parse(std::move(contents), name));
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
  const bool joined = joining == PieceJoining::kDefault || kind() == VocabularyKind::kTokenizer;
  std::string text = joined ? model_->Decode(ids) : JoinWithSpaces(model_->table(), ids);
  if (joining == PieceJoining::kBpe) return UndoBpe(std::move(text));
  return joining == PieceJoining::kSentencePiece ? UndoSentencePiece(text) : text;
}

std::string_view Vocabulary::extension() const {
  switch (kind()) {
    case VocabularyKind::kSentencePiece:
      return ".model";
    case VocabularyKind::kDictionary:
      return ".txt";
    case VocabularyKind::kTokenizer:
      break;
  }
  return ".json";
}

std::string Vocabulary::FileName(std::string_view stem) const {
  return std::string(kind() == VocabularyKind::kTokenizer ? kTokenizer : stem).append(extension());
}

absl::Status Vocabulary::Save(const std::string& path) const { return ReplaceFile(path, contents(), "partial"); }

// fairseq's dict.txt: one "token count" per line, most frequent first, without the four special tokens. A line may end
// in "#fairseq:overwrite": its token may then repeat an earlier one and takes over the name; both keep their ids.
// Source of the format: fairseq, fairseq/data/dictionary.py, add_from_file.
namespace {

class DictionaryModel : public VocabularyModel {
 public:
  DictionaryModel(TokenTable table, std::string contents, PieceJoining joining)
      : VocabularyModel(std::move(table), std::move(contents)), joining_(joining) {}

  VocabularyKind kind() const override { return VocabularyKind::kDictionary; }

  std::vector<int32_t> Encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const std::string_view word : SplitAtSpace(text)) {  // Unicode's, as fairseq does
      const int32_t id = table().Id(word);
      ids.push_back(TokenTable::IsSpecial(id) ? kUnknownToken : id);
    }
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    const std::string text = JoinWithSpaces(table(), ids);
    if (joining_ == PieceJoining::kBpe) return UndoBpe(text);
    return joining_ == PieceJoining::kSentencePiece ? UndoSentencePiece(text) : text;
  }

 private:
  const PieceJoining joining_;
};

// How the tokens of a dictionary are joined: pieces mark that they do not end a word ("@@"), or that they begin one
// ("▁"). A dictionary of words may have a few such strings.
PieceJoining JoiningOf(const TokenTable& table) {
  int32_t unfinished = 0, begun = 0;
  for (int32_t id = kSpecialTokens; id < table.size(); ++id) {
    unfinished += table.Token(id).ends_with("@@") ? 1 : 0;
    begun += table.Token(id).starts_with(kWordStart) ? 1 : 0;
  }
  if (20 * std::max(unfinished, begun) < table.size()) return PieceJoining::kSpaces;
  return unfinished > begun ? PieceJoining::kBpe : PieceJoining::kSentencePiece;
}

// Adds one line to the table. The error describes the fault in the line.
absl::Status AddLine(std::string line, TokenTable& table) {
  constexpr std::string_view kOverwrite = " #fairseq:overwrite";
  const bool overwrite = line.ends_with(kOverwrite);
  if (overwrite) line.resize(line.size() - kOverwrite.size());
  const size_t space = line.rfind(' ');
  if (space == std::string::npos || space == 0) {
    return InvalidArgumentError("expected 'token count' with one space between them");
  }
  const std::string token = line.substr(0, space);
  const std::string count = line.substr(space + 1);
  int64_t number = 0;
  if (!absl::SimpleAtoi(count, &number)) return InvalidArgumentError("the count '", count, "' is not a number");
  if (std::ranges::any_of(token, absl::ascii_isspace)) {
    return InvalidArgumentError("the token '", token, "' has a space inside");
  }
  if (!table.Add(token, overwrite) && !overwrite) {
    const int32_t id = table.Id(token);
    return InvalidArgumentError(
        "the token '", token, "' already has the id ", id,
        TokenTable::IsSpecial(id) ? ", as in every dictionary; remove this line" : "; remove one of the two");
  }
  return absl::OkStatus();
}

// What a file is that is no dictionary, with the remedy; "" if it is not known. `line`: the first that is none.
std::string KindOfOther(std::string_view contents, std::string_view line) {
  if (contents.starts_with("\x1F\x8B")) return "is compressed with gzip; decompress it";
  if (contents.starts_with("version https://git-lfs")) {
    return "is a pointer of Git LFS, not the file itself; `git lfs pull` fetches that";
  }
  if (contents.starts_with('[')) {
    return "is JSON; give the SentencePiece model or dict.txt that belongs to it";
  }
  double score = 0;
  const size_t tab = line.rfind('\t');
  if (tab != std::string_view::npos && absl::SimpleAtod(std::string(line.substr(tab + 1)), &score)) {
    return "is a SentencePiece model's list of pieces; give the model itself (.model)";
  }
  return "";
}

// Whether all lines are "token: id", as in YAML.
bool IsYaml(const TokenTable& table) {
  bool all = table.size() > kSpecialTokens + 1;
  for (int32_t id = kSpecialTokens; all && id < table.size(); ++id) all = table.Token(id).ends_with(':');
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseDictionary(std::string contents, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  TokenTable table;
  size_t begin = contents.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (int64_t number = 1; begin < contents.size(); ++number) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    std::string line = contents.substr(begin, end - begin);
    begin = end + 1;
    absl::StripTrailingAsciiWhitespace(&line);
    if (const absl::Status status = AddLine(line, table); !status.ok()) {
      if (const std::string kind = KindOfOther(contents, line); !kind.empty()) {
        return InvalidArgumentError(name, " ", kind);
      }
      return InvalidArgumentError(
          name, ", line ", number, ": ", status.message(),
          " (this is neither a SentencePiece model nor a fairseq dictionary, or a damaged one)");
    }
  }
  if (IsYaml(table)) {
    return InvalidArgumentError(
        name, " has 'token: id' lines, as a YAML vocabulary; write 'token count' lines instead, in the ",
        "order of the ids, without the special tokens");
  }
  const PieceJoining joining = JoiningOf(table);
  return std::make_unique<const DictionaryModel>(std::move(table), std::move(contents), joining);
}

// A SentencePiece model, renumbered to hadal's ids: the four special tokens, then every other piece in the model's
// order.
namespace {

// Piece id → id, and back. piece_of_id of `<s>`, `<pad>` and `</s>` is -1: they are never decoded.
struct Numbering {
  std::vector<int32_t> id_of_piece;
  std::vector<int> piece_of_id;
};

class SentencePieceModel : public VocabularyModel {
 public:
  SentencePieceModel(TokenTable table, std::string contents, std::unique_ptr<const PieceModel> pieces,
                     Numbering numbering)
      : VocabularyModel(std::move(table), std::move(contents)),
        pieces_(std::move(pieces)),
        numbering_(std::move(numbering)) {}

  VocabularyKind kind() const override { return VocabularyKind::kSentencePiece; }

  std::vector<int32_t> Encode(std::string_view text) const override {
    std::vector<int> ids = pieces_->Encode(text);
    for (int& id : ids) id = numbering_.id_of_piece[static_cast<size_t>(id)];
    return ids;
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    std::vector<int> piece_ids;
    piece_ids.reserve(ids.size());
    for (const int32_t id : ids) {
      table().Token(id);  // checks the range
      const int piece = numbering_.piece_of_id[static_cast<size_t>(id)];
      if (piece >= 0) piece_ids.push_back(piece);
    }
    return pieces_->Decode(piece_ids);
  }

 private:
  std::unique_ptr<const PieceModel> pieces_;
  Numbering numbering_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseSentencePiece(std::string contents,
                                                                          const std::string& name) {
  std::string error;
  std::unique_ptr<const PieceModel> pieces = PieceModel::Parse(contents, error);
  if (pieces == nullptr) {
    return InvalidArgumentError(name, " is not a SentencePiece model, or a damaged one (", error,
                                "); copy or train it again");
  }
  TokenTable table;
  Numbering numbering = {.id_of_piece = std::vector<int32_t>(static_cast<size_t>(pieces->size()), kUnknownToken),
                         .piece_of_id = {-1, -1, -1, pieces->unknown_id()}};
  for (int piece = 0; piece < pieces->size(); ++piece) {
    const bool special = piece == pieces->unknown_id() || piece == pieces->bos_id() || piece == pieces->eos_id() ||
                         piece == pieces->pad_id();
    if (special) continue;
    numbering.id_of_piece[static_cast<size_t>(piece)] = table.size();
    numbering.piece_of_id.push_back(piece);
    table.Add(pieces->Piece(piece));
  }
  return std::make_unique<const SentencePieceModel>(std::move(table), std::move(contents), std::move(pieces),
                                                    std::move(numbering));
}

namespace {

class TokenizerModel : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;

  VocabularyKind kind() const override { return VocabularyKind::kTokenizer; }

  std::vector<int32_t> Encode(std::string_view) const override {
    HADAL_CHECK(!"a tokenizer.json encodes no text here");
    return {};
  }

  std::string Decode(std::span<const int32_t> ids) const override {
    return absl::StrJoin(ids, " ", [&](std::string* out, int32_t id) { *out += table().Token(id); });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseTokenizer(std::string contents, const std::string& name) {
  HADAL_ASSIGN_OR_RETURN(std::vector<std::string> tokens, TokensOfTokenizer(contents, name));
  return std::make_unique<const TokenizerModel>(TokenTable(std::move(tokens)), std::move(contents));
}

}  // namespace hadal
