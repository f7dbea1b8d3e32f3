#include "tools/translate/bleu_command.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/data/tokenize_13a.h"
#include "runtime/data/unspaced_text.h"
#include "runtime/printable.h"
#include "runtime/status_macros.h"
#include "tools/corpus/text_input.h"
#include "tools/corpus/text_lines.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr size_t kMostBytes = size_t{512} << 20;  // lines of one text in memory: a pipe may be endless

// The lines of `in`, without trailing white space; a byte order mark is a part of the first word, as in sacreBLEU.
// `name`: its name in errors.
absl::StatusOr<std::vector<std::string>> ReadLines(std::istream& in, const std::string& name, std::ostream& log) {
  TextLines text(in, name, ByteOrderMark::kKept);
  std::vector<std::string> lines;
  std::string line;
  size_t bytes = 0;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool another, text.Next(line));
    if (!another) break;
    lines.emplace_back(StripTrailingSpace(line));
    bytes += sizeof(line) + line.size();
    if (bytes <= kMostBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": more than ", text.lines(), " lines, which take more than ",
                                                   kMostBytes, " bytes; score a smaller text"));
  }
  if (lines.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": is empty"));
  if (lines.front().starts_with(kByteOrderMark)) {
    log << "warning: " << Printable(name)
        << " begins with a byte order mark, which counts as a part of its first word, as in "
        << "sacreBLEU; remove it with `sed -i '1s/^\\xEF\\xBB\\xBF//' FILE`\n";
  }
  return lines;
}

absl::StatusOr<std::vector<std::string>> ReadFile(const std::string& path, std::ostream& log) {
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<std::istream> in, OpenText(path));
  return ReadLines(*in, path, log);
}

std::string FormatJson(const BleuScore& score, int references, int digits) {
  const std::string signature = BleuSignature(references);
  nlohmann::ordered_json json;
  json["name"] = "BLEU";
  json["score"] = std::stod(absl::StrFormat("%.*f", digits, score.score));
  json["signature"] = signature;
  json["verbose_score"] = BleuDetails(score);
  for (const auto field : absl::StrSplit(signature, '|')) {
    const std::pair<std::string, std::string> entry = absl::StrSplit(field, absl::MaxSplits(':', 1));
    json[entry.first] = entry.second;
  }
  return json.dump(1);
}

}  // namespace

std::string FormatBleu(const BleuScore& score, int references, BleuFormat format, int digits) {
  switch (format) {
    case BleuFormat::kJson:
      return FormatJson(score, references, digits);
    case BleuFormat::kText:
      return absl::StrFormat("BLEU|%s = %.*f %s", BleuSignature(references), digits, score.score, BleuDetails(score));
    case BleuFormat::kScoreOnly:
      break;
  }
  return absl::StrFormat("%.*f", digits, score.score);
}

absl::Status RunBleu(const BleuCommandOptions& options, std::istream& standard_input, std::ostream& out,
                     std::ostream& log) {
  std::vector<std::vector<std::string>> references;
  for (const std::string& path : options.references) {
    HADAL_ASSIGN_OR_RETURN(references.emplace_back(), ReadFile(path, log));
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> hypotheses,
                         options.hypotheses.empty() ? ReadLines(standard_input, "standard input", log)
                                                    : ReadFile(options.hypotheses, log));
  for (size_t r = 0; r < references.size(); ++r) {
    if (references[r].size() == hypotheses.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(options.references[r], " has ", references[r].size(), " lines, but there are ", hypotheses.size(),
                     " hypotheses; both need one line per sentence, including empty lines"));
  }
  if (std::ranges::any_of(references, IsUnspaced)) log << "warning: " << kUnspacedBleu << "\n";
  HADAL_ASSIGN_OR_RETURN(const BleuScore score, CorpusBleu(hypotheses, references));
  out << FormatBleu(score, static_cast<int>(references.size()), options.format, options.digits) << "\n";
  return absl::OkStatus();
}

void AddBleuCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("bleu", "Score translations: corpus BLEU, equal to sacreBLEU's default");
  auto options = std::make_shared<BleuCommandOptions>();
  command
      .AddOption("-r,--reference", options->references, "Reference file, detokenised; repeat it for several references")
      .OneValueEach()
      .Required();
  command.AddOption("-i,--input,translations", options->hypotheses, "File of translations (default: standard input)");
  command.AddOption("-w,--width", options->digits, "Decimals of the score").InRange(0, 12).ShowDefault();
  const auto set_format = [options](BleuFormat format) { return [options, format] { options->format = format; }; };
  CommandOption json = command.AddFlag("--json", set_format(BleuFormat::kJson), "Print a JSON object (the default)");
  CommandOption text = command.AddFlag("--text", set_format(BleuFormat::kText), "Print one line");
  CommandOption bare = command.AddFlag("--score-only", set_format(BleuFormat::kScoreOnly), "Print only the number");
  text.Excludes(json);
  bare.Excludes(json).Excludes(text);
  command.Runs([options, &exit_code] {
    const absl::Status status = RunBleu(*options, std::cin, std::cout, std::cerr);
    exit_code = EndTool("bleu", status);
  });
}

}  // namespace hadal
