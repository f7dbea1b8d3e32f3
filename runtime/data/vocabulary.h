// Converts text to token ids and back.
//
// A vocabulary is one of three kinds, recognised by the file's content:
//   SentencePiece model   for raw text; the model (BPE or unigram) segments it
//   dictionary            fairseq's dict.txt, one "token count" per line; for text of tokens and spaces
//   tokenizer.json        of Hugging Face: all ids are the file's, and none is special here. Text goes through the
//                         Python package `tokenizers` (tools/corpus/text_codec.h), not through Encode and Decode.
// Ids of the first two kinds: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the model's pieces or the dictionary's
// lines in their order. A SentencePiece model with other special ids is renumbered; one trained by hadal keeps its ids.
//
// contents() returns the file's bytes and crc32c() their checksum. Corpora and checkpoints store both, so that a model
// never receives ids of another vocabulary.
// Thread safety: immutable after construction; any thread may call all methods. Copies share the model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

class VocabularyModel;

enum class VocabularyKind { kSentencePiece, kDictionary, kTokenizer };

// How Decode joins tokens.
enum class PieceJoining {
  kDefault,        // SentencePiece: as the model defines; dictionary: kBpe or kSentencePiece by its marks, else kSpaces
  kSpaces,         // unchanged tokens, separated by spaces
  kBpe,            // undoes subword-nmt: removes "@@ "
  kSentencePiece,  // undoes "▁": joins tokens without spaces, then "▁" becomes a space
};

class Vocabulary {
 public:
  // Reads a file. Errors: NotFound; InvalidArgument if the file is of none of the kinds, with the line of a dictionary.
  static absl::StatusOr<Vocabulary> Load(const std::string& path);
  // As Load, from memory; errors contain `name` instead of the path.
  static absl::StatusOr<Vocabulary> Parse(std::string contents, const std::string& name);
  // Creates a dictionary of `tokens` (ids 4, 5, …). Errors: InvalidArgument for a token that occurs twice, is empty or
  // contains a space.
  static absl::StatusOr<Vocabulary> FromTokens(const std::vector<std::string>& tokens);

  VocabularyKind kind() const;
  // The number of ids, including the special ones.
  int32_t size() const;

  // Returns the ids of `text`, without `</s>`. Tokens that the vocabulary lacks become `<unk>`, and so does text that
  // spells a special token. Empty or blank text has no ids. REQUIRES: kind() is not kTokenizer.
  std::vector<int32_t> Encode(std::string_view text) const;
  // Returns the text of `ids`, without `<s>`, `<pad>` and `</s>`. For a tokenizer.json kDefault is kSpaces, and no
  // token is left out. REQUIRES: every id in [0, size()).
  std::string Decode(std::span<const int32_t> ids, PieceJoining joining = PieceJoining::kDefault) const;

  // Returns the token's string. REQUIRES: id in [0, size()).
  const std::string& Token(int32_t id) const;
  // Returns the string's id, or kUnknownToken if there is none; in a tokenizer.json that id may be some other token's.
  int32_t Id(std::string_view token) const;

  // The file's bytes.
  const std::string& contents() const;
  // The checksum of contents() (crc32c.h).
  uint32_t crc32c() const;
  // The file name extension of the kind: ".model", ".txt" or ".json".
  std::string_view extension() const;
  // Returns the name to save it under: `stem` and the extension, but "tokenizer.json" for a tokenizer.json.
  std::string FileName(std::string_view stem) const;
  // Writes contents() to `path`. Errors: the file system's.
  absl::Status Save(const std::string& path) const;

 private:
  explicit Vocabulary(std::shared_ptr<const VocabularyModel> model);
  std::shared_ptr<const VocabularyModel> model_;
};

}  // namespace hadal
