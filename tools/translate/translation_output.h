// The output of `hadal translate` and `sample` for one line of input (FormatOutput), and the file of --out, which
// `hadal score` uses too (OutputFile). Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "pipeline/decode/beam_search.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"

namespace hadal {

// The form of the output for one line of input:
//
//   text   up to nbest lines, best score first; before each, if nbest > 1, the input line's number and a tab, and, if
//          `scores`, the score and a tab. A line end in a text becomes a space. Without a hypothesis: one line, whose
//          score and text are empty
//   JSON   {"line": N, "source": "…", "hypotheses": [{"text": "…", "tokens": ["…", …, "</s>"], "score": S,
//           "log_probabilities": [P, …]}, …]}   on one line; "prompt" instead of "source" for a language model
// `tokens` and `log_probabilities` have one entry for each token, forced ones and </s> included; P is the model's
// log p, natural. Invalid UTF-8 (a text that ends within a character) is replaced by U+FFFD in JSON.
struct OutputForm {
  int32_t nbest = 1;
  bool scores = false;  // before each text
  bool json = false;
  PieceJoining joining = PieceJoining::kDefault;
  size_t hidden_tokens = 0;           // tokens at the beginning that the text does not show: a forced language tag
  const char* input_name = "source";  // JSON's key of the input's text
  int32_t end_token = kEosToken;
  std::function<std::string(std::span<const int32_t>)> decode = {};  // instead of the vocabulary's Decode
};

// Returns the output, which ends in a newline. `number`: of the input's line, from 1; `input`: that line's text, read
// only for JSON.
std::string FormatOutput(const OutputForm& form, const Vocabulary& vocabulary, int64_t number, std::string_view input,
                         std::span<const Hypothesis> hypotheses);

// The file of --out, or standard output. A file is replaced atomically: it is written as PATH.partial and renamed by
// Finish; until then an existing PATH is unchanged. Without Finish, PATH.partial remains with the lines written so far,
// if there are any. A pipe, a device and an open file of the process (/dev/stdout) are written directly.
// Blocking: all calls.
class OutputFile {
 public:
  explicit OutputFile(std::ostream& standard) : standard_(standard) {}
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // `path`: PATH, or "" for standard output. `inputs`: paths of the files that are translated; PATH must be none of
  // them. `overwrite`: allows replacing a PATH or PATH.partial that is not empty.
  // Errors: those of CheckOutput (tools/output/staged_output.h) for PATH and PATH.partial; Aborted if another process
  // writes PATH; file errors.
  absl::Status Open(const std::string& path, const std::vector<std::string>& inputs, bool overwrite);
  std::ostream& stream() { return stream_.is_open() ? stream_ : standard_; }
  // Errors: ResourceExhausted if something was not written.
  absl::Status Flush();
  // Closes the file and renames it to PATH; does nothing if none is open.
  // Errors: ResourceExhausted if something was not written; those of renaming.
  absl::Status Finish();

 private:
  std::ostream& standard_;
  std::string path_;
  std::string written_;  // the path that is open
  bool is_stream_ = false;
  FileDescriptor lock_;  // of PATH.partial
  std::ofstream stream_;
};

}  // namespace hadal
