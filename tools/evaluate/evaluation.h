// The scores of one model on several test sets, one for each direction (or domain of one), and the reports of them.
//
// Thread safety: pure, except ScoreFiles, which reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/bleu.h"
#include "runtime/data/language_tags.h"

namespace hadal {

// Another system on the same test set.
struct OtherSystem {
  double bleu = 0;
  double p_value = 1;  // of the difference, by paired bootstrap (tools/compare/bleu_significance.h)
};

struct TestSetScores {
  std::string name;  // "en-de", "en-de domain"
  std::string stem;  // of its files
  Direction direction;
  int64_t segments = 0;
  int64_t empty_segments = 0;  // with a blank side
  BleuTokenizer tokenizer = BleuTokenizer::k13a;
  double bleu = 0;
  double bleu_13a = 0;                             // by sacreBLEU's default, whatever the language
  double chrf = 0;                                 // chrF++
  std::optional<double> wrong_language;            // share of the outputs that are not blank
  std::optional<double> wrong_language_reference;  // the same of the references: the classifier's own mistakes
  std::optional<int64_t> training_pairs;           // of the direction, all domains; empty: the corpus is not known
  std::optional<OtherSystem> other;
};

// Compares line n of `hypotheses` with line n of `references`, reading both once. `other`: another system's
// translations, or empty. Memory: a line of each; with `other` 160 bytes for each line, too.
// Errors: those of reading; InvalidArgument for unequal numbers of lines.
struct ScoredFiles {
  std::string hypotheses, references, other;  // paths
};
absl::Status ScoreFiles(const ScoredFiles& files, TestSetScores& scores);

// The mean of some test sets.
struct EvaluationMean {
  std::string what;  // "en→xx"
  int64_t sets = 0;
  double bleu = 0, bleu_13a = 0, chrf = 0;
  std::optional<double> wrong_language;  // of those that have it
  int64_t wins = 0, compared = 0;        // test sets with a higher BLEU than the other system's; of how many
  int64_t significant_wins = 0, significant_losses = 0;  // of them with p < 0.05
};

// All; from and into `pivot` ("en"); neither side the pivot; directions that training had no pairs of; by pairs of the
// training corpus. Means without a test set are left out.
std::vector<EvaluationMean> MeansOf(const std::vector<TestSetScores>& sets, const std::string& pivot);

struct Evaluation {
  std::string checkpoint;
  std::string other;  // the folder compared with; empty: none
  std::string pivot = "en";
  std::string language_note;  // why there are no shares of wrong languages, or which classifier made them
  std::vector<TestSetScores> sets;
};

std::string EvaluationMarkdown(const Evaluation& evaluation);
std::string EvaluationJson(const Evaluation& evaluation);
// One self-contained page: a heat map of BLEU (sources in rows, targets in columns), the means, the table.
std::string EvaluationHtml(const Evaluation& evaluation);

}  // namespace hadal
