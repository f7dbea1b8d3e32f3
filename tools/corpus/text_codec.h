// Turns text into token ids and back with any vocabulary of hadal. A SentencePiece model and a dictionary do it
// themselves; for a tokenizer.json the Python package `tokenizers` does it (hadal_torch's `tokenize`), in one child
// process that runs as long as the codec exists. Special tokens in a text are text; none is added.
// Thread safety: one thread; a child uses all CPUs. Blocking: starting Python takes a quarter of a second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary.h"
#include "tools/corpus/parallel_text.h"
#include "tools/python_child.h"

namespace hadal {

enum class CodecInput {
  kText,
  kIds,  // decimal numbers with spaces between them; needs no Python
};

class TextCodec {
 public:
  // Errors: those of starting Python; InvalidArgument with an empty message if the
  // package is missing or refuses the file: it has printed why.
  static absl::StatusOr<TextCodec> Open(const Vocabulary& vocabulary, CodecInput kind = CodecInput::kText);

  // `alone`: for an encoder alone; a text has the special tokens of a tokenizer.json around it, and kContinuesWord in
  // tokens that continue a word. Errors: InvalidArgument for a text that is no list of ids of the vocabulary, or that
  // the tokenizer cannot encode; Internal if Python has ended.
  absl::StatusOr<std::vector<std::vector<int32_t>>> EncodeAll(const std::vector<std::string>& texts,
                                                              bool alone = false);
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text, bool alone = false);
  // Encodes the target of a line of the file `path`; a line may hold ids whatever the codec's kind. Errors: also for an
  // invalid line; all name the file and the line's number.
  absl::StatusOr<std::vector<int32_t>> Encode(const ParallelLine& line, const std::string& path, bool alone = false);
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids, PieceJoining joining = PieceJoining::kDefault);
  // Of a tokenizer.json: what its post-processor gives an empty text, the ids of all special tokens, ascending, and the
  // unknown token's, if there is one.
  absl::StatusOr<std::vector<std::vector<int32_t>>> SpecialIds();

 private:
  TextCodec(Vocabulary vocabulary, CodecInput kind, std::optional<PythonService> python)
      : vocabulary_(std::move(vocabulary)), kind_(kind), python_(std::move(python)) {}

  Vocabulary vocabulary_;
  CodecInput kind_;
  std::optional<PythonService> python_;
};

// Removes the start and end tokens of `form` from the ends of `ids`, if they are there: what is made from `ids` adds
// them again.
void RemoveEnds(const TextForm& form, std::vector<int32_t>& ids);

}  // namespace hadal
