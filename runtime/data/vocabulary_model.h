// The implementation behind Vocabulary (vocabulary.h). Internal to runtime/data; other code includes vocabulary.h.
//
// TokenTable maps token ids to strings and back. VocabularyModel is the base class of the two kinds of vocabulary,
// SentencePiece models and fairseq dictionaries; each has a derived class with its own segmentation of text
// (ParseSentencePiece, ParseDictionary).
// Thread safety: const methods may be called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

// Ids ↔ strings, beginning with the four special tokens.
class TokenTable {
 public:
  TokenTable();

  // Assigns the next id to `token`. If the string already has an id, Id() keeps returning that one, unless `replace`.
  // Returns whether the string was new.
  bool Add(std::string token, bool replace = false);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  const std::string& Token(int32_t id) const;
  int32_t Id(std::string_view token) const;
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
  VocabularyModel(TokenTable table, std::string contents);
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

// Joins the tokens with spaces, without `<s>`, `<pad>` and `</s>`.
std::string JoinWithSpaces(const TokenTable& table, std::span<const int32_t> ids);

absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseDictionary(std::string contents, const std::string& name);
absl::StatusOr<std::unique_ptr<const VocabularyModel>> ParseSentencePiece(std::string contents,
                                                                          const std::string& name);

}  // namespace hadal
