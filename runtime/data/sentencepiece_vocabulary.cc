// A SentencePiece model, renumbered to hadal's ids: the four special tokens, then every other piece in the model's
// order.
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/data/piece_model.h"
#include "runtime/data/vocabulary_model.h"

namespace hadal {
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
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not a SentencePiece model, or a damaged one (", error, "); copy or train it again"));
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

}  // namespace hadal
