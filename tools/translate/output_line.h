// Formats what `hadal translate` and `hadal sample` print of one line of input.
//
//   text   up to nbest lines, best score first; the line's number and a tab before each if nbest > 1, its score and a
//          tab if `scores`. A line end inside becomes a space. Without a hypothesis: one empty line
//   JSON   {"line": N, "source": "…", "hypotheses": [{"text": "…", "tokens": ["…", …, "</s>"], "score": S,
//           "log_probabilities": [P, …]}, …]}   on one line; "prompt" instead of "source" for a language model
// `tokens` and `log_probabilities` have one entry for each token, forced ones and </s> included; P is the model's
// log p, natural. What is not UTF-8 (a text that ends within a character) is replaced by U+FFFD in JSON.
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pipeline/decode/beam_search.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

struct OutputForm {
  int32_t nbest = 1;
  bool scores = false;  // before each text
  bool json = false;
  PieceJoining joining = PieceJoining::kDefault;
  size_t hidden_tokens = 0;           // at the beginning, which the text does not show: a forced language tag
  const char* input_name = "source";  // JSON's key of the input's text
};

// The result ends in a newline. `number`: of the input's line, from 1; `input`: its text, read only for JSON.
std::string FormatOutput(const OutputForm& form, const Vocabulary& vocabulary, int64_t number, std::string_view input,
                         std::span<const Hypothesis> hypotheses);

}  // namespace hadal
