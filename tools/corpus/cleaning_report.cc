#include "tools/corpus/cleaning_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

double ShareOf(const SkippedLines& skipped, int64_t lines) {
  return static_cast<double>(skipped.total()) / static_cast<double>(lines);
}

std::string Reasons(const SkippedLines& skipped, const PrepareOptions& options) {
  std::vector<std::string> reasons;
  if (skipped.empty > 0) {
    reasons.push_back(absl::StrCat(HumanCount(skipped.empty), options.monolingual ? " empty" : " with an empty side"));
  }
  if (skipped.too_long > 0) {
    reasons.push_back(absl::StrCat(HumanCount(skipped.too_long), " longer than ", options.max_tokens, " tokens"));
  }
  if (skipped.invalid > 0) reasons.push_back(absl::StrCat(HumanCount(skipped.invalid), " not UTF-8 or broken JSON"));
  if (skipped.held_out > 0)
    reasons.push_back(absl::StrCat(HumanCount(skipped.held_out), " in validation or test text"));
  if (skipped.duplicates > 0) reasons.push_back(absl::StrCat(HumanCount(skipped.duplicates), " duplicates"));
  if (skipped.high_ratio > 0) {
    reasons.push_back(absl::StrFormat("%s with a length ratio over %g", HumanCount(skipped.high_ratio),
                                      options.max_length_ratio.value_or(0)));
  }
  return absl::StrJoin(reasons, ", ");
}

// The remedy for the most frequent reason.
std::string Advice(const SkippedLines& skipped, const PrepareOptions& options) {
  if (skipped.filtered() > std::max({skipped.empty, skipped.invalid, skipped.too_long})) {
    return "check that it is the right file, or leave out the filter";
  }
  if (skipped.too_long >= std::max(skipped.empty, skipped.invalid)) {
    return absl::StrCat("raise --max-tokens ", options.max_tokens,
                        ", use a vocabulary that fits the text, or cut it into shorter lines");
  }
  if (skipped.invalid > skipped.empty) return "correct its JSON, or its encoding with iconv";
  return options.monolingual ? "check that it is the right file"
                             : "check that the two files are translations of each other, line by line";
}

}  // namespace

SkippedLines& SkippedLines::operator+=(const SkippedLines& other) {
  for (const auto count : {&SkippedLines::invalid, &SkippedLines::empty, &SkippedLines::too_long,
                           &SkippedLines::held_out, &SkippedLines::duplicates, &SkippedLines::high_ratio}) {
    this->*count += other.*count;
  }
  return *this;
}

std::string DescribeSkipped(const SkippedLines& skipped, int64_t lines, const PrepareOptions& options) {
  if (skipped.total() == 0) return "nothing skipped";
  return absl::StrFormat("skipped %s of %s (%.3g%%): %s", HumanCount(skipped.total()), HumanCount(lines),
                         100 * ShareOf(skipped, lines), Reasons(skipped, options));
}

std::string MostlySkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options) {
  if (2 * skipped.total() <= lines) return "";
  return absl::StrCat("most of the ", name, " text (", file,
                      ") is unusable: ", DescribeSkipped(skipped, lines, options), "; ", Advice(skipped, options));
}

absl::Status CheckSkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options) {
  if (lines == 0) return InvalidArgumentError("the ", name, " text (", file, ") is empty");
  if (skipped.total() == lines) {
    return InvalidArgumentError("no line is left of the ", name, " text (", file,
                                "): ", DescribeSkipped(skipped, lines, options), "; ", Advice(skipped, options));
  }
  if (ShareOf(skipped, lines) <= options.most_skipped) return absl::OkStatus();
  return InvalidArgumentError(absl::StrFormat(
      "more of the %s text (%s) is skipped than the %.3g%% that --max-skipped allows: %s; %s, or raise --max-skipped",
      name, file, 100 * options.most_skipped, DescribeSkipped(skipped, lines, options), Advice(skipped, options)));
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kReportedRatio = 3;
constexpr size_t kMostRows = 20;

enum class Has { kAll, kTraining, kTwoSides };  // which texts have a count

struct Count {
  const char* key;    // JSON
  std::string title;  // table
  int64_t (*of)(const TextFindings& text);
  Has has = Has::kAll;
};

std::vector<Count> CountsOf(const PrepareOptions& options) {
  const std::string pairs = options.units();
  return {{"pairs", pairs, [](const TextFindings& text) { return text.lines; }},
          {"invalid", "invalid", [](const TextFindings& text) { return text.skipped.invalid; }},
          {"empty", "empty", [](const TextFindings& text) { return text.skipped.empty; }},
          {"held_out", "valid/test", [](const TextFindings& text) { return text.held_out; }, Has::kTraining},
          {"duplicates", "duplicates", [](const TextFindings& text) { return text.duplicates; }},
          {"repeated_sources", "same source", [](const TextFindings& text) { return text.repeated_sources; },
           Has::kTwoSides},
          {"repeated_targets", "same target", [](const TextFindings& text) { return text.repeated_targets; },
           Has::kTwoSides},
          {"equal_sides", "source=target", [](const TextFindings& text) { return text.equal_sides; }, Has::kTwoSides},
          {"too_long", "too long", [](const TextFindings& text) { return text.skipped.too_long; }},
          {"high_ratio", absl::StrFormat("ratio>%g", LengthRatio(options)),
           [](const TextFindings& text) { return text.high_ratio; }, Has::kTwoSides},
          {"kept", "kept", [](const TextFindings& text) { return text.kept(); }}};
}

bool IsOf(const Count& count, const SplitFindings& split, const PrepareOptions& options) {
  if (count.has == Has::kTwoSides) return !options.monolingual;
  return count.has == Has::kAll || split.training;
}

OrderedJson TextJson(const TextFindings& text, const SplitFindings& split, const PrepareOptions& options) {
  OrderedJson json{{"text", text.name}};
  for (const Count& count : CountsOf(options)) {
    if (IsOf(count, split, options)) json[count.key] = count.of(text);
  }
  if (!split.training) return json;
  if (options.drop_test_overlap) json["dropped"]["held_out"] = text.skipped.held_out;
  if (options.drop_duplicates) json["dropped"]["duplicates"] = text.skipped.duplicates;
  if (options.max_length_ratio) json["dropped"]["high_ratio"] = text.skipped.high_ratio;
  return json;
}

}  // namespace

double LengthRatio(const PrepareOptions& options) { return options.max_length_ratio.value_or(kReportedRatio); }

TextFindings Total(const std::vector<TextFindings>& texts) {
  TextFindings total = {.name = "total"};
  for (const TextFindings& text : texts) {
    total.lines += text.lines;
    total.held_out += text.held_out;
    total.duplicates += text.duplicates;
    total.repeated_sources += text.repeated_sources;
    total.repeated_targets += text.repeated_targets;
    total.equal_sides += text.equal_sides;
    total.high_ratio += text.high_ratio;
    total.skipped += text.skipped;
  }
  return total;
}

std::string CleaningTable(const std::vector<SplitFindings>& splits, const PrepareOptions& options) {
  using Row = std::vector<std::string>;
  std::vector<Count> counts = CountsOf(options);
  std::erase_if(counts, [&](const Count& count) {
    return std::ranges::all_of(splits, [&](const SplitFindings& split) { return count.of(Total(split.texts)) == 0; });
  });
  std::vector<Row> rows = {{""}};
  for (const Count& count : counts) rows[0].push_back(count.title);
  for (const SplitFindings& split : splits) {
    const auto add = [&](const TextFindings& text) {
      Row& row = rows.emplace_back();
      row.push_back(split.texts.size() == 1 ? split.split : Printable(absl::StrCat(split.split, " ", text.name)));
      for (const Count& count : counts) row.push_back(IsOf(count, split, options) ? HumanCount(count.of(text)) : "");
    };
    if (split.texts.size() <= kMostRows) std::ranges::for_each(split.texts, add);
    if (split.texts.size() > 1) add(Total(split.texts));
  }
  return AlignedColumns(rows);
}

std::string CleaningJson(const std::vector<SplitFindings>& splits, const PrepareOptions& options) {
  OrderedJson json{{"max_tokens", options.max_tokens}};
  if (!options.monolingual) json["length_ratio"] = LengthRatio(options);
  for (const SplitFindings& split : splits) {
    OrderedJson& texts = json["splits"][split.split] = OrderedJson::array();
    for (const TextFindings& text : split.texts) texts.push_back(TextJson(text, split, options));
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace hadal
