#include "tools/evaluate/evaluation.h"

#include <algorithm>
#include <functional>
#include <istream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/data/chrf.h"
#include "runtime/data/unicode_text.h"
#include "runtime/status_macros.h"
#include "tools/compare/bleu_significance.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

constexpr double kSignificance = 0.05;
constexpr int64_t kFewPairs = 100'000, kManyPairs = 900'000;

// The lines of one file, as sacreBLEU reads them.
class File {
 public:
  static absl::StatusOr<File> Open(const std::string& path) {
    HADAL_ASSIGN_OR_RETURN(std::unique_ptr<std::istream> in, OpenText(path));
    return File(path, std::move(in));
  }
  absl::StatusOr<bool> Next(std::string& line) {
    HADAL_ASSIGN_OR_RETURN(const bool more, lines_->Next(line));
    line.resize(more ? StripTrailingSpace(line).size() : 0);
    return more;
  }

 private:
  File(const std::string& path, std::unique_ptr<std::istream> in)
      : in_(std::move(in)), lines_(std::make_unique<TextLines>(*in_, path, ByteOrderMark::kKept)) {}

  std::unique_ptr<std::istream> in_;
  std::unique_ptr<TextLines> lines_;
};

absl::Status Unequal(const std::string& a, const std::string& b, int64_t lines) {
  return absl::InvalidArgumentError(
      absl::StrCat(a, " and ", b, " have different numbers of lines: one of them ends after line ", lines));
}

EvaluationMean MeanOf(std::string what, const std::vector<const TestSetScores*>& sets) {
  EvaluationMean mean{.what = std::move(what), .sets = std::ssize(sets)};
  double wrong = 0;
  int64_t classified = 0;
  for (const TestSetScores* set : sets) {
    mean.bleu += set->bleu / static_cast<double>(sets.size());
    mean.bleu_13a += set->bleu_13a / static_cast<double>(sets.size());
    mean.chrf += set->chrf / static_cast<double>(sets.size());
    wrong += set->wrong_language.value_or(0);
    classified += set->wrong_language ? 1 : 0;
    if (!set->other) continue;
    ++mean.compared;
    const bool significant = set->other->p_value < kSignificance;
    mean.wins += set->bleu > set->other->bleu ? 1 : 0;
    mean.significant_wins += significant && set->bleu > set->other->bleu ? 1 : 0;
    mean.significant_losses += significant && set->bleu < set->other->bleu ? 1 : 0;
  }
  if (classified > 0) mean.wrong_language = wrong / static_cast<double>(classified);
  return mean;
}

}  // namespace

absl::Status ScoreFiles(const ScoredFiles& files, TestSetScores& scores) {
  HADAL_ASSIGN_OR_RETURN(File hypotheses, File::Open(files.hypotheses));
  HADAL_ASSIGN_OR_RETURN(File references, File::Open(files.references));
  std::optional<File> others;
  if (!files.other.empty()) {
    HADAL_ASSIGN_OR_RETURN(others, File::Open(files.other));
  }
  BleuCounts bleu, bleu_13a;
  ChrfCounts chrf;
  std::vector<BleuCounts> segments, of_other;
  std::string hypothesis, reference, other;
  scores.segments = 0;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool has_hypothesis, hypotheses.Next(hypothesis));
    HADAL_ASSIGN_OR_RETURN(const bool has_reference, references.Next(reference));
    if (has_hypothesis != has_reference) return Unequal(files.hypotheses, files.references, scores.segments);
    if (others) {
      HADAL_ASSIGN_OR_RETURN(const bool has_other, others->Next(other));
      if (has_other != has_reference) return Unequal(files.other, files.references, scores.segments);
    }
    if (!has_reference) break;
    ++scores.segments;
    const BleuCounts counts = CountBleuMatches(hypothesis, {&reference, 1}, scores.tokenizer);
    bleu += counts;
    bleu_13a += scores.tokenizer == BleuTokenizer::k13a ? counts : CountBleuMatches(hypothesis, {&reference, 1});
    chrf += CountChrfMatches(hypothesis, {&reference, 1}, kChrfMostWordOrder);
    if (!others) continue;
    segments.push_back(counts);
    of_other.push_back(CountBleuMatches(other, {&reference, 1}, scores.tokenizer));
  }
  scores.bleu = BleuFromCounts(bleu).score;
  scores.bleu_13a = BleuFromCounts(bleu_13a).score;
  scores.chrf = ChrfFromCounts(chrf);
  if (!others) return absl::OkStatus();
  BleuCounts sum;
  for (const BleuCounts& counts : of_other) sum += counts;
  scores.other = {.bleu = BleuFromCounts(sum).score, .p_value = PairedBootstrapPValue(segments, of_other)};
  return absl::OkStatus();
}

std::vector<EvaluationMean> MeansOf(const std::vector<TestSetScores>& sets, const std::string& pivot) {
  using Choice = std::function<bool(const TestSetScores&)>;
  const auto pairs = [](int64_t least, int64_t below) {
    return [least, below](const TestSetScores& set) {
      return set.training_pairs && *set.training_pairs >= least && *set.training_pairs < below;
    };
  };
  const bool has_pivot = std::ranges::any_of(
      sets, [&](const TestSetScores& set) { return set.direction.source == pivot || set.direction.target == pivot; });
  const std::pair<std::string, Choice> groups[] = {
      {"all", [](const TestSetScores&) { return true; }},
      {absl::StrCat(pivot, "→xx"), [&](const TestSetScores& set) { return set.direction.source == pivot; }},
      {absl::StrCat("xx→", pivot), [&](const TestSetScores& set) { return set.direction.target == pivot; }},
      {absl::StrCat("without ", pivot),
       [&](const TestSetScores& set) {
         return has_pivot && set.direction.source != pivot && set.direction.target != pivot;
       }},
      {"zero-shot: no training pairs", pairs(0, 1)},
      {"fewer than 100,000 training pairs", pairs(1, kFewPairs)},
      {"100,000 to 900,000 training pairs", pairs(kFewPairs, kManyPairs)},
      {"900,000 training pairs or more", pairs(kManyPairs, INT64_MAX)}};
  std::vector<EvaluationMean> means;
  for (const auto& [what, is_in] : groups) {
    std::vector<const TestSetScores*> chosen;
    for (const TestSetScores& set : sets) {
      if (is_in(set)) chosen.push_back(&set);
    }
    if (!chosen.empty()) means.push_back(MeanOf(what, chosen));
  }
  return means;
}

}  // namespace hadal
