// An interface to the SentencePiece library without its headers. They define absl::string_view in their own way, so no
// file may include both them and Abseil. Internal to runtime/data.
// Thread safety: a PieceModel is immutable. Training sets the library's log level, which is process-wide.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hadal {

class PieceModel {
 public:
  // Parses a serialised model. Returns null on failure, with the library's message in `error`.
  static std::unique_ptr<const PieceModel> Parse(const std::string& contents, std::string& error);

  virtual ~PieceModel() = default;
  virtual int size() const = 0;
  virtual const std::string& Piece(int id) const = 0;
  // Ids of the special pieces; -1 if the model has none.
  virtual int bos_id() const = 0;
  virtual int eos_id() const = 0;
  virtual int pad_id() const = 0;
  virtual int unknown_id() const = 0;
  virtual std::vector<int> Encode(std::string_view text) const = 0;
  virtual std::string Decode(const std::vector<int>& ids) const = 0;
};

// Trains on `sentences` in their order, with spm_train's flags in `arguments`. Long sentences are split into parts of
// some kilobytes, at spaces if there are any, so that no word changes. On success `contents` is the serialised model.
// Returns false on failure, with the library's message in `error`.
bool TrainPieceModel(const std::unordered_map<std::string, std::string>& arguments,
                     const std::vector<std::string>& sentences, std::string& contents, std::string& error);

}  // namespace hadal
