#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "runtime/data/chrf.h"
#include "tools/drawing/html_page.h"
#include "tools/drawing/markdown.h"
#include "tools/drawing/svg.h"
#include "tools/evaluate/evaluation.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

std::string OneDigit(double value) { return absl::StrFormat("%.1f", value); }
std::string Share(const std::optional<double>& share) { return share ? absl::StrFormat("%.1f%%", 100 * *share) : "–"; }

bool IsCompared(const Evaluation& evaluation) { return !evaluation.other.empty(); }

Cells SetHeader(const Evaluation& evaluation) {
  Cells cells = {"direction", "segments", "training pairs", "BLEU",         "tokenizer",
                 "BLEU 13a",  "chrF++",   "wrong language", "of references"};
  if (IsCompared(evaluation)) cells.insert(cells.end(), {"other's BLEU", "p"});
  return cells;
}

Cells SetRow(const Evaluation& evaluation, const TestSetScores& set) {
  std::string tokenizer;
  for (const auto& entry : kBleuTokenizers) {
    if (entry.value == set.tokenizer) tokenizer = entry.word;
  }
  Cells cells = {set.name,
                 HumanCount(set.segments),
                 set.training_pairs ? HumanCount(*set.training_pairs) : "–",
                 OneDigit(set.bleu),
                 tokenizer,
                 OneDigit(set.bleu_13a),
                 OneDigit(set.chrf),
                 Share(set.wrong_language),
                 Share(set.wrong_language_reference)};
  if (!IsCompared(evaluation)) return cells;
  cells.push_back(set.other ? OneDigit(set.other->bleu) : "–");
  cells.push_back(set.other ? absl::StrFormat("%.3f", set.other->p_value) : "–");
  return cells;
}

Cells MeanHeader(const Evaluation& evaluation) {
  Cells cells = {"mean over", "directions", "BLEU", "BLEU 13a", "chrF++", "wrong language"};
  if (IsCompared(evaluation)) cells.insert(cells.end(), {"wins", "p < 0.05: better", "worse"});
  return cells;
}

Cells MeanRow(const Evaluation& evaluation, const EvaluationMean& mean) {
  Cells cells = {mean.what,           HumanCount(mean.sets),     OneDigit(mean.bleu), OneDigit(mean.bleu_13a),
                 OneDigit(mean.chrf), Share(mean.wrong_language)};
  if (!IsCompared(evaluation)) return cells;
  cells.push_back(absl::StrCat(mean.wins, " of ", mean.compared));
  cells.push_back(absl::StrCat(mean.significant_wins));
  cells.push_back(absl::StrCat(mean.significant_losses));
  return cells;
}

// Fills a MarkdownTable or an HtmlTable.
template <typename Table>
std::string MeanTable(const Evaluation& evaluation) {
  Table table(MeanHeader(evaluation));
  for (const EvaluationMean& mean : MeansOf(evaluation.sets, evaluation.pivot)) table.Add(MeanRow(evaluation, mean));
  return std::move(table).Finish();
}

template <typename Table>
std::string SetTable(const Evaluation& evaluation) {
  Table table(SetHeader(evaluation));
  for (const TestSetScores& set : evaluation.sets) table.Add(SetRow(evaluation, set));
  return std::move(table).Finish();
}

// What the columns are, one sentence each.
std::vector<std::string> Notes(const Evaluation& evaluation) {
  std::set<BleuTokenizer> tokenizers = {BleuTokenizer::k13a};
  for (const TestSetScores& set : evaluation.sets) tokenizers.insert(set.tokenizer);
  std::vector<std::string> notes;
  for (const BleuTokenizer tokenizer : tokenizers) {
    notes.push_back(absl::StrCat("BLEU: ", BleuSignature(1, tokenizer)));
  }
  notes.push_back(absl::StrCat(ChrfName(kChrfMostWordOrder), ": ", ChrfSignature(1, kChrfMostWordOrder)));
  notes.push_back(
      "BLEU takes the tokenizer of the target language (zh: Chinese; char: others without spaces between words; 13a: "
      "the "
      "rest); BLEU 13a is sacreBLEU's default for every language.");
  notes.push_back(evaluation.language_note);
  if (IsCompared(evaluation)) {
    notes.push_back(absl::StrCat("Other: ", evaluation.other,
                                 "; p: paired bootstrap of the BLEU difference, 1,000 resamples, two-sided."));
  }
  return notes;
}

OrderedJson ToJson(const TestSetScores& set) {
  OrderedJson json = {{"name", set.name},
                      {"source", set.direction.source},
                      {"target", set.direction.target},
                      {"files", set.stem},
                      {"segments", set.segments},
                      {"empty_segments", set.empty_segments},
                      {"bleu", set.bleu},
                      {"bleu_signature", BleuSignature(1, set.tokenizer)},
                      {"bleu_13a", set.bleu_13a},
                      {"chrf", set.chrf}};
  if (set.wrong_language) json["wrong_language"] = *set.wrong_language;
  if (set.wrong_language_reference) json["wrong_language_reference"] = *set.wrong_language_reference;
  if (set.training_pairs) json["training_pairs"] = *set.training_pairs;
  if (set.other) json["other"] = {{"bleu", set.other->bleu}, {"p_value", set.other->p_value}};
  return json;
}

OrderedJson ToJson(const EvaluationMean& mean) {
  OrderedJson json = {{"what", mean.what},
                      {"directions", mean.sets},
                      {"bleu", mean.bleu},
                      {"bleu_13a", mean.bleu_13a},
                      {"chrf", mean.chrf}};
  if (mean.wrong_language) json["wrong_language"] = *mean.wrong_language;
  if (mean.compared > 0) {
    json["compared"] = mean.compared;
    json["wins"] = mean.wins;
    json["significant_wins"] = mean.significant_wins;
    json["significant_losses"] = mean.significant_losses;
  }
  return json;
}

// From white (0) to dark green (the highest BLEU).
std::string Colour(double share) {
  const auto mix = [share](int light, int dark) { return light + static_cast<int>(share * (dark - light)); };
  return absl::StrFormat("#%02x%02x%02x", mix(247, 0), mix(252, 104), mix(245, 55));
}

// BLEU of each direction, over its domains their mean; sources in rows, targets in columns.
std::string HeatMap(const Evaluation& evaluation) {
  std::set<std::string> sources, targets;
  std::map<std::pair<std::string, std::string>, std::pair<double, int>> cells;
  for (const TestSetScores& set : evaluation.sets) {
    sources.insert(set.direction.source);
    targets.insert(set.direction.target);
    auto& [sum, count] = cells[{set.direction.source, set.direction.target}];
    sum += set.bleu;
    ++count;
  }
  double highest = 1e-9;
  for (const auto& [direction, cell] : cells) highest = std::max(highest, cell.first / cell.second);
  constexpr double kHeight = 20, kTop = 30, kCharacter = 6.6;  // of a label
  double width = 34, left = 90;
  for (const std::string& target : targets) width = std::max(width, kCharacter * std::ssize(target) + 6);
  for (const std::string& source : sources) left = std::max(left, kCharacter * std::ssize(source) + 16);
  Svg svg(left + width * static_cast<double>(targets.size()) + 10,
          kTop + kHeight * static_cast<double>(sources.size()) + 10);
  double x = left, y = kTop;
  for (const std::string& target : targets) {
    svg.Text(x + width / 2, kTop - 8, target, Svg::Anchor::kMiddle, 11);
    x += width;
  }
  for (const std::string& source : sources) {
    svg.Text(left - 8, y + 14, source, Svg::Anchor::kEnd, 11);
    x = left;
    for (const std::string& target : targets) {
      if (const auto cell = cells.find({source, target}); cell != cells.end()) {
        const double bleu = cell->second.first / cell->second.second;
        svg.Rect(x, y, width - 1, kHeight - 1, Colour(bleu / highest),
                 absl::StrCat(source, "→", target, " ", OneDigit(bleu)));
        svg.Text(x + width / 2, y + 14, OneDigit(bleu), Svg::Anchor::kMiddle, 10, bleu > highest / 2 ? "#fff" : "#333");
      }
      x += width;
    }
    y += kHeight;
  }
  return std::move(svg).Finish();
}

}  // namespace

std::string EvaluationMarkdown(const Evaluation& evaluation) {
  std::string text =
      absl::StrCat("# ", EscapeMarkdown(evaluation.checkpoint), "\n\n", MeanTable<MarkdownTable>(evaluation), "\n",
                   SetTable<MarkdownTable>(evaluation), "\n");
  for (const std::string& note : Notes(evaluation)) absl::StrAppend(&text, "- ", EscapeMarkdown(note), "\n");
  return text;
}

std::string EvaluationJson(const Evaluation& evaluation) {
  OrderedJson json = {
      {"checkpoint", evaluation.checkpoint}, {"means", OrderedJson::array()}, {"test_sets", OrderedJson::array()}};
  if (IsCompared(evaluation)) json["other"] = evaluation.other;
  json["chrf_signature"] = ChrfSignature(1, kChrfMostWordOrder);
  for (const EvaluationMean& mean : MeansOf(evaluation.sets, evaluation.pivot)) json["means"].push_back(ToJson(mean));
  for (const TestSetScores& set : evaluation.sets) json["test_sets"].push_back(ToJson(set));
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string EvaluationHtml(const Evaluation& evaluation) {
  std::string page = HtmlHead(evaluation.checkpoint);
  absl::StrAppend(&page, "<h1>", EscapeMarkup(evaluation.checkpoint), "</h1>\n<h2>BLEU, from row to column</h2>\n",
                  HeatMap(evaluation), "\n", MeanTable<HtmlTable>(evaluation), SetTable<HtmlTable>(evaluation));
  for (const std::string& note : Notes(evaluation)) absl::StrAppend(&page, HtmlNote(note));
  return page.append(kHtmlEnd);
}

}  // namespace hadal
