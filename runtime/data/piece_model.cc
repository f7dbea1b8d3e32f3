#include "runtime/data/piece_model.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace hadal {
namespace {

class LibraryModel : public PieceModel {
 public:
  sentencepiece::util::Status Load(const std::string& contents) { return processor_.LoadFromSerializedProto(contents); }

  int size() const override { return processor_.GetPieceSize(); }
  const std::string& Piece(int id) const override { return processor_.IdToPiece(id); }
  int bos_id() const override { return processor_.bos_id(); }
  int eos_id() const override { return processor_.eos_id(); }
  int pad_id() const override { return processor_.pad_id(); }
  int unknown_id() const override { return processor_.unk_id(); }
  std::vector<int> Encode(std::string_view text) const override { return processor_.EncodeAsIds(text); }
  std::string Decode(const std::vector<int>& ids) const override { return processor_.DecodeIds(ids); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

// Feeds sentences to the trainer without copying them.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<const PieceModel> PieceModel::Parse(const std::string& contents, std::string& error) {
  auto model = std::make_unique<LibraryModel>();
  const sentencepiece::util::Status status = model->Load(contents);
  if (status.ok()) return model;
  error = status.ToString();
  return nullptr;
}

bool TrainPieceModel(const std::unordered_map<std::string, std::string>& arguments,
                     const std::vector<std::string>& sentences, std::string& contents, std::string& error) {
  Sentences iterator(sentences);
  const sentencepiece::util::Status status =
      sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &contents);
  if (!status.ok()) error = status.ToString();
  return status.ok();
}

}  // namespace hadal
