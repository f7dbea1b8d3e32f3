#include "tools/translate/metric_commands.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/data/chrf.h"
#include "runtime/data/unicode_text.h"
#include "runtime/data/word_errors.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/commands.h"
#include "tools/corpus/text_lines.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr size_t kMostScoredBytes = size_t{512} << 20;  // lines of one text in memory: a pipe may be endless
// Of a line: WER takes words² time (some 7 s for such a line of one-letter words), CER characters², chrF 80 bytes of
// memory a character.
constexpr size_t kMostLineBytes = size_t{128} << 10;

// What most of the lines look like that are not plain sentences, with the remedy: their score means little. Or "".
std::string NotSentences(const std::vector<std::string>& lines) {
  static constexpr std::pair<bool (*)(const std::string& line), const char*> kKinds[] = {
      {[](const std::string& line) { return line.starts_with("{\""); }, "JSON; score the text of each object"},
      {[](const std::string& line) {
         double score = 0;
         const size_t tab = line.find('\t');
         return tab != std::string::npos && absl::SimpleAtod(line.substr(0, tab), &score);
       },
       "a score, a tab and a sentence; `cut -f2-` leaves the sentence"},
      {[](const std::string& line) {
         return line.size() > 3 && absl::StrContains("SHTDP", line[0]) && line[1] == '-' &&
                absl::ascii_isdigit(line[2]) && absl::StrContains(line, '\t');
       },
       "lines of fairseq-generate; score the sentences of its D- and T-lines"},
      {[](const std::string& line) { return absl::StrContains(line, "@@ ") || line.starts_with("\xE2\x96\x81"); },
       "pieces of words; join them first"},
      {[](const std::string& line) { return line.ends_with(" ."); }, "tokenised text; detokenise it first"}};
  for (const auto& [looks, what] : kKinds) {
    if (2 * std::ranges::count_if(lines, looks) > std::ssize(lines)) return what;
  }
  return "";
}

// The lines of `in`, without trailing white space; a byte order mark is a part of the first word, as in sacreBLEU.
absl::StatusOr<std::vector<std::string>> ReadLines(TextLines in, std::ostream& log) {
  const std::string& name = in.name();
  std::vector<std::string> lines;
  std::string line;
  size_t bytes = 0;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool another, in.Next(line));
    if (!another) break;
    if (line.size() > kMostLineBytes) {
      return InvalidArgumentError(in.Place(), ": a line of ", line.size(), " bytes; at most ", kMostLineBytes,
                                  " are scored: give one sentence a line");
    }
    lines.emplace_back(StripTrailingSpace(line));
    bytes += sizeof(std::string) + line.size();
    if (bytes <= kMostScoredBytes) continue;
    return InvalidArgumentError(name, ": more than ", in.lines(), " lines, which take more than ", kMostScoredBytes,
                                " bytes; score a smaller text");
  }
  if (lines.empty()) return InvalidArgumentError(name, ": is empty");
  if (lines.front().starts_with(kByteOrderMark)) {
    log << "warning: " << Printable(name)
        << " begins with a byte order mark, which counts as a part of its first word, as in "
        << "sacreBLEU; remove it with `sed -i '1s/^\\xEF\\xBB\\xBF//' FILE`\n";
  }
  if (const std::string kind = NotSentences(lines); !kind.empty()) {
    log << "warning: most lines of " << Printable(name) << " look like " << kind << "\n";
  }
  return lines;
}

absl::StatusOr<std::vector<std::string>> ReadFile(const std::string& path, std::ostream& log) {
  HADAL_ASSIGN_OR_RETURN(TextLines lines, TextLines::Open(path, ByteOrderMark::kKept));
  return ReadLines(std::move(lines), log);
}

struct MetricResult {
  std::string name;
  double score = 0;
  std::string signature;  // "key:value|key:value…"
  std::string details;    // may be empty
};

// The counts of all segments together. `count(hypothesis, its references)` returns those of one.
template <typename Counts, typename Count>
Counts Sum(const std::vector<std::string>& hypotheses, const std::vector<std::vector<std::string>>& references,
           Count count) {
  Counts sum;
  std::vector<std::string> of_segment(references.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) of_segment[r] = references[r][i];
    sum += count(hypotheses[i], of_segment);
  }
  return sum;
}

MetricResult Score(const MetricOptions& options, const std::vector<std::string>& hypotheses,
                   const std::vector<std::vector<std::string>>& references) {
  const int count = static_cast<int>(references.size());
  switch (options.metric) {
    case Metric::kChrf: {
      const auto counts = Sum<ChrfCounts>(hypotheses, references, [&](const auto& hypothesis, const auto& wanted) {
        return CountChrfMatches(hypothesis, wanted, options.word_order);
      });
      return {ChrfName(options.word_order), ChrfFromCounts(counts), ChrfSignature(count, options.word_order), ""};
    }
    case Metric::kWer: {
      const bool characters = options.characters;
      const auto counts = Sum<WordErrors>(hypotheses, references, [&](const auto& hypothesis, const auto& wanted) {
        return characters ? CountCharacterErrors(hypothesis, wanted.front())
                          : CountWordErrors(hypothesis, wanted.front());
      });
      return {characters ? "CER" : "WER", counts.Rate(),
              absl::StrCat("nrefs:1|case:mixed|tok:", characters ? "char" : "space", "|version:jiwer-4.0.0+hadal"),
              absl::StrFormat("(errors = %d ref_len = %d)", counts.errors, counts.reference_words)};
    }
    case Metric::kBleu:
      break;
  }
  const BleuScore bleu =
      BleuFromCounts(Sum<BleuCounts>(hypotheses, references, [&](const auto& hypothesis, const auto& wanted) {
        return CountBleuMatches(hypothesis, wanted, options.tokenizer);
      }));
  return {"BLEU", bleu.score, BleuSignature(count, options.tokenizer), BleuDetails(bleu)};
}

std::string FormatJson(const MetricResult& result, int digits) {
  nlohmann::ordered_json json;
  json["name"] = result.name;
  json["score"] = std::stod(absl::StrFormat("%.*f", digits, result.score));
  json["signature"] = result.signature;
  if (!result.details.empty()) json["verbose_score"] = result.details;
  for (const auto field : absl::StrSplit(result.signature, '|')) {
    const std::pair<std::string, std::string> entry = absl::StrSplit(field, absl::MaxSplits(':', 1));
    json[entry.first] = entry.second;
  }
  return json.dump(1);
}

std::string Format(const MetricResult& result, MetricFormat format, int digits) {
  std::string score = absl::StrFormat("%.*f", digits, result.score);
  if (format == MetricFormat::kScoreOnly) return score;
  if (format == MetricFormat::kJson) return FormatJson(result, digits);
  return absl::StrCat(result.name, "|", result.signature, " = ", score, result.details.empty() ? "" : " ",
                      result.details);
}

// Adds a subcommand with the options that all metrics have.
Command AddMetricCommand(Command app, const std::string& name, const std::string& description,
                         const std::shared_ptr<MetricOptions>& options, int& exit_code) {
  Command command = app.AddCommand(name, description);
  CommandOption reference = command.AddOption("-r,--reference", options->references,
                                              options->metric == Metric::kWer
                                                  ? "Reference file"
                                                  : "Reference file, detokenised; repeat it for several references");
  reference.OneValueEach().Required();
  command.AddOption("-i,--input,translations", options->hypotheses,
                    options->metric == Metric::kWer ? "File of transcripts (default: standard input)"
                                                    : "File of translations (default: standard input)");
  command.AddNumber("-w,--width", options->digits, "Decimals of the score", 0, 12);
  const auto set_format = [options](MetricFormat format) { return [options, format] { options->format = format; }; };
  CommandOption json = command.AddFlag("--json", set_format(MetricFormat::kJson), "Print a JSON object (the default)");
  CommandOption text = command.AddFlag("--text", set_format(MetricFormat::kText), "Print one line");
  CommandOption bare = command.AddFlag("--score-only", set_format(MetricFormat::kScoreOnly), "Print only the number");
  text.Excludes(json);
  bare.Excludes(json).Excludes(text);
  command.Runs(
      [options, name, &exit_code] { exit_code = EndTool(name, RunMetric(*options, std::cin, std::cout, std::cerr)); });
  return command;
}

}  // namespace

absl::Status RunMetric(const MetricOptions& options, std::istream& standard_input, std::ostream& out,
                       std::ostream& log) {
  if (options.metric == Metric::kWer && options.references.size() > 1) {
    return InvalidArgumentError("WER takes one reference, and ", options.references.size(),
                                " are given; score with each of them alone");
  }
  std::vector<std::vector<std::string>> references;
  for (const std::string& path : options.references) {
    HADAL_ASSIGN_OR_RETURN(references.emplace_back(), ReadFile(path, log));
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> hypotheses,
                         options.hypotheses.empty()
                             ? ReadLines(TextLines(standard_input, "standard input", ByteOrderMark::kKept), log)
                             : ReadFile(options.hypotheses, log));
  for (size_t r = 0; r < references.size(); ++r) {
    if (references[r].size() == hypotheses.size()) continue;
    return InvalidArgumentError(
        options.references[r], " has ", references[r].size(), " lines, but there are ", hypotheses.size(),
        " hypotheses; both need one line per sentence, including empty lines",
        hypotheses.size() % references[r].size() == 0 ? " (--nbest prints several per sentence)" : "");
  }
  const bool bleu = options.metric == Metric::kBleu && options.tokenizer == BleuTokenizer::k13a;
  if ((bleu || (options.metric == Metric::kWer && !options.characters)) &&
      std::ranges::any_of(references, IsUnspaced)) {
    log << "warning: " << (bleu ? kUnspacedBleu : kUnspacedWer) << "\n";
  }
  out << Format(Score(options, hypotheses, references), options.format, options.digits) << "\n";
  return absl::OkStatus();
}

void AddBleuCommand(Command app, int& exit_code) {
  auto options = std::make_shared<MetricOptions>();
  Command command =
      AddMetricCommand(app, "bleu", "Score translations: corpus BLEU, equal to sacreBLEU's", options, exit_code);
  std::vector<std::pair<std::string, BleuTokenizer>> tokenizers;
  for (const auto& entry : kBleuTokenizers) tokenizers.emplace_back(entry.word, entry.value);
  command.AddChoice("--tokenize", options->tokenizer,
                    "13a (the default); char: every character; zh: every Chinese character, the rest as 13a",
                    tokenizers);
}

void AddChrfCommand(Command app, int& exit_code) {
  auto options = std::make_shared<MetricOptions>(MetricOptions{.metric = Metric::kChrf});
  Command command = AddMetricCommand(app, "chrf", "Score translations: corpus chrF and chrF++, equal to sacreBLEU's",
                                     options, exit_code);
  command.AddNumber("--word-order", options->word_order, "Longest n-grams of words: 0 is chrF, 2 is chrF++", 0,
                    kChrfMostWordOrder);
}

void AddWerCommand(Command app, int& exit_code) {
  auto options = std::make_shared<MetricOptions>(MetricOptions{.metric = Metric::kWer, .digits = 4});
  Command command = AddMetricCommand(
      app, "wer", "Score transcripts: word error rate (0.25: one word of four is wrong), equal to jiwer's", options,
      exit_code);
  command.AddFlag("--characters", options->characters, "Character error rate, spaces between words included");
}

}  // namespace hadal
