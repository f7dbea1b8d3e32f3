#include "runtime/data/piece_model.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cstddef>

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

// The trainer ends the process if a word has more than 65,535 characters, and normalising makes up to six of a byte.
constexpr size_t kLongestPart = 10'000;  // bytes

// Returns the first bytes of a text: all of it, or up to its last space within kLongestPart. A longer word is split
// between two characters.
std::string_view FirstPart(std::string_view text) {
  if (text.size() <= kLongestPart) return text;
  const size_t space = text.rfind(' ', kLongestPart);
  if (space != std::string_view::npos && space > 0) return text.substr(0, space);
  size_t end = kLongestPart;
  while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  return text.substr(0, end);
}

// Passes sentences to the trainer: long ones in parts, others without a copy.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) { Take(); }
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override {
    begin_ += size_;
    if (begin_ == sentences_[next_].size()) {
      ++next_;
      begin_ = 0;
    }
    Take();
  }
  const std::string& value() const override { return size_ == sentences_[next_].size() ? sentences_[next_] : part_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void Take() {
    if (done()) return;
    const std::string_view part = FirstPart(std::string_view(sentences_[next_]).substr(begin_));
    size_ = part.size();
    if (size_ != sentences_[next_].size()) part_ = part;
  }

  const std::vector<std::string>& sentences_;
  size_t next_ = 0, begin_ = 0, size_ = 0;  // the sentence, and its bytes
  std::string part_;
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
