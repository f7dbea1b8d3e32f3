// `hadal bleu`, `chrf` and `wer` score a file of translations, equal to sacreBLEU and jiwer (the definitions:
// runtime/data/bleu.h, chrf.h, word_errors.h).
//
//   hadal bleu [HYPOTHESES] -r REFERENCE … [-i HYPOTHESES] [--text | --score-only] [-w DIGITS] [--tokenize 13a|char|zh]
//   hadal chrf … [--word-order 0|1|2]
//   hadal wer -r REFERENCE … [--characters]
// Without HYPOTHESES the translations are read from standard input. Prints sacreBLEU's JSON object, or with --text its
// line of text. Input lines end only at "\n", as in sacreBLEU (not at U+2028 or "\r"); empty lines count as sentences.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/data/bleu.h"

namespace hadal {

enum class Metric { kBleu, kChrf, kWer };
enum class MetricFormat { kJson, kText, kScoreOnly };

struct MetricOptions {
  Metric metric = Metric::kBleu;
  std::vector<std::string> references;  // paths; WER: one
  std::string hypotheses;               // path; empty: standard input
  MetricFormat format = MetricFormat::kJson;
  int digits = 1;                                 // decimals of the score
  BleuTokenizer tokenizer = BleuTokenizer::k13a;  // BLEU
  int word_order = 0;                             // chrF
  bool characters = false;                        // WER: computes CER, the rate of character errors, instead
};

// Scores the files and writes the result with a newline to `out`. Warns on `log` about references without spaces
// between words, where the metric needs them.
// Errors: those of files; InvalidArgument if a file is not UTF-8 or has a line of more than 128 KiB (with the line's
// number), is empty, or has another number of lines than the hypotheses, or if WER is given several references.
absl::Status RunMetric(const MetricOptions& options, std::istream& standard_input, std::ostream& out,
                       std::ostream& log);

}  // namespace hadal
