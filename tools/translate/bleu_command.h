// `hadal bleu`: corpus BLEU of a file of translations, equal to sacreBLEU's default (runtime/data/bleu.h has the
// definition).
//
//   hadal bleu -r REFERENCE [-r REFERENCE …] [-i HYPOTHESES] [--text | --score-only] [-w DIGITS]
// Reads the hypotheses from standard input where -i is not given. Prints sacreBLEU's JSON object, or with --text its
// line. A line ends at "\n" only, as in sacreBLEU (U+2028 and "\r" do not end one); empty lines count as sentences.
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
  int digits = 1;  // of the score, after the point
};

// Scores the files and writes the result to `out`, with a last newline; a warning about references that 13a cannot cut
// into words goes to `log`.
// Errors: a file that cannot be read, is not UTF-8 (with its line), is empty, or whose number of lines differs.
absl::Status RunBleu(const BleuCommandOptions& options, std::istream& standard_input, std::ostream& out,
                     std::ostream& log);

// The score in words or JSON, without a last newline.
std::string FormatBleu(const BleuScore& score, int references, BleuFormat format, int digits);

// Registers the subcommand; running it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddBleuCommand(Command app, int& exit_code);

}  // namespace hadal
