// The SentencePiece library through an interface without its headers. They define absl::string_view in their own way,
// so no file may include both them and Abseil. Internal to runtime/data.
//
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
  // Parses a serialised model. Null on failure, with the library's message in `error`.
  static std::unique_ptr<const PieceModel> Parse(const std::string& contents, std::string& error);

  virtual ~PieceModel() = default;
  virtual int size() const = 0;
  virtual const std::string& Piece(int id) const = 0;
  // Ids of the special pieces; -1 where the model has none.
  virtual int bos_id() const = 0;
  virtual int eos_id() const = 0;
  virtual int pad_id() const = 0;
  virtual int unknown_id() const = 0;
  virtual std::vector<int> Encode(std::string_view text) const = 0;
  virtual std::string Decode(const std::vector<int>& ids) const = 0;
};

// Trains with spm_train's flags in `arguments`, on `sentences` in their order; long ones in parts of some kilobytes,
// cut at spaces where there are any, which changes no word. On success `contents` is the serialised model. False on
// failure, with the library's message in `error`.
bool TrainPieceModel(const std::unordered_map<std::string, std::string>& arguments,
                     const std::vector<std::string>& sentences, std::string& contents, std::string& error);

}  // namespace hadal
