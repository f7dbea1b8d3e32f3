// Vocabulary: text ↔ token ids.
//
// Two kinds, recognised by their file's content:
//   SentencePiece model   raw text in, raw text out; the model (BPE or unigram) segments
//   dictionary            fairseq's dict.txt, one "token count" a line; text comes as tokens and spaces
// Ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the model's pieces or the dictionary's lines in their order. A
// SentencePiece model trained elsewhere with other special ids is renumbered in this way. A model trained by hadal
// keeps its ids.
//
// A vocabulary is its file: contents() returns the bytes, crc32c() identifies them. Corpora and checkpoints store both,
// so that a model never gets ids of another vocabulary.
// Thread safety: immutable after construction; several threads may call all methods. Copies share the model.
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

enum class VocabularyKind { kSentencePiece, kDictionary };

// How Decode joins tokens to text.
enum class PieceJoining {
  kDefault,        // SentencePiece: as the model says; dictionary: with spaces
  kSpaces,         // tokens as they are, with a space between two
  kBpe,            // undoes subword-nmt: "@@ " vanishes
  kSentencePiece,  // undoes "▁": tokens joined without spaces, "▁" becomes one
};

class Vocabulary {
 public:
  // Reads a file. Errors: NotFound; InvalidArgument for a file of neither kind, with the line if there is one.
  static absl::StatusOr<Vocabulary> Load(const std::string& path);
  // The same from memory; errors use `name` instead of the path.
  static absl::StatusOr<Vocabulary> Parse(std::string contents, const std::string& name);
  // A dictionary of `tokens` (ids 4, 5, …). Errors: a token that occurs twice, is empty or has a space in it.
  static absl::StatusOr<Vocabulary> FromTokens(const std::vector<std::string>& tokens);

  VocabularyKind kind() const;
  // Number of ids, the four special ones included.
  int32_t size() const;

  // Ids of `text`, without `</s>`. What the vocabulary lacks becomes `<unk>`, and so does text that spells a special
  // token. Empty or blank text gives no ids.
  std::vector<int32_t> Encode(std::string_view text) const;
  // Text of `ids`, without `<s>`, `<pad>` and `</s>`. REQUIRES: every id in [0, size()).
  std::string Decode(std::span<const int32_t> ids, PieceJoining joining = PieceJoining::kDefault) const;

  // The token's string. REQUIRES: id in [0, size()).
  const std::string& Token(int32_t id) const;
  // The string's id; kUnknownToken if there is none.
  int32_t Id(std::string_view token) const;

  // The file's bytes, their checksum (crc32c.h), and the suitable file name extension: ".model" or ".txt".
  const std::string& contents() const;
  uint32_t crc32c() const;
  std::string_view extension() const;
  // Writes contents() to `path`. Errors: the file system's.
  absl::Status Save(const std::string& path) const;

 private:
  explicit Vocabulary(std::shared_ptr<const VocabularyModel> model);
  std::shared_ptr<const VocabularyModel> model_;
};

}  // namespace hadal
