// `hadal embed` writes a vector for each sentence or document of a text: what an encoder alone returns for it.
//
//   hadal embed RUN_OR_DIR --input FILE --out FILE.npy [--pooling mean|first]
// Writes an array [lines, d_model] of float32 in NumPy's format 1.0: the mean of the encoder's outputs over the line's
// tokens and </s>, or the output at the first of them. An empty line is </s> alone. With a tokenizer.json the tokens of
// its post-processor are there, as in training. The file is read as by `hadal prepare` (JSON Lines: an object is a
// line). A line's vector does not depend on the other lines. One process, on the CPU: under mpirun the first. Memory:
// all vectors.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace hadal {

enum class Pooling { kMean, kFirst };

struct EmbedOptions {
  std::string checkpoint;
  std::string input, output;
  std::string text_field = "text";  // of an input in JSON Lines
  Pooling pooling = Pooling::kMean;
  bool overwrite = false;       // replace an array of the same name
  int32_t batch_tokens = 2048;  // of a batch; also limits a line
  int32_t threads = 1;
};

// Errors: InvalidArgument for a model with a decoder, and with their number for lines that are not UTF-8 or too long;
// those of opening a checkpoint and of output_rules.h.
absl::Status RunEmbed(const EmbedOptions& options, std::ostream& out);

}  // namespace hadal
