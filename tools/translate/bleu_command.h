// `hadal bleu` computes the corpus BLEU of a file of translations, equal to sacreBLEU's default (runtime/data/bleu.h
// has the definition).
//
//   hadal bleu -r REFERENCE [-r REFERENCE …] [-i HYPOTHESES] [--text | --score-only] [-w DIGITS]
// Reads hypotheses from standard input without -i. Prints sacreBLEU's JSON object, or with --text its line. A line ends
// only at "\n", as in sacreBLEU (not at U+2028 or "\r"); empty lines count as sentences.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/data/bleu.h"
#include "tools/command_line.h"

namespace hadal {

enum class BleuFormat { kJson, kText, kScoreOnly };

struct BleuCommandOptions {
  std::vector<std::string> references;  // paths
  std::string hypotheses;               // path; empty: standard input
  BleuFormat format = BleuFormat::kJson;
  int digits = 1;  // decimals of the score
};

// Scores the files and writes the result with a newline to `out`. Warns on `log` about references that 13a cannot
// tokenise into words.
// Errors: a file that cannot be read, is not UTF-8 (with its line), is empty, or has another number of lines.
absl::Status RunBleu(const BleuCommandOptions& options, std::istream& standard_input, std::ostream& out,
                     std::ostream& log);

// The score as text or JSON, without a final newline.
std::string FormatBleu(const BleuScore& score, int references, BleuFormat format, int digits);

// Registers the subcommand; it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddBleuCommand(Command app, int& exit_code);

}  // namespace hadal
