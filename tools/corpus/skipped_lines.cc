#include "tools/corpus/skipped_lines.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/output/human_units.h"

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
  if (skipped.invalid > 0) reasons.push_back(absl::StrCat(HumanCount(skipped.invalid), " not UTF-8"));
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
    return absl::StrCat("raise --max-tokens ", options.max_tokens, ", or use a vocabulary that fits the text");
  }
  if (skipped.invalid > skipped.empty) return "convert the file (for example with iconv)";
  return options.monolingual ? "check that it is the right file"
                             : "check that the two files are translations of each other, line by line";
}

}  // namespace

SkippedLines& SkippedLines::operator+=(const SkippedLines& other) {
  invalid += other.invalid;
  empty += other.empty;
  too_long += other.too_long;
  held_out += other.held_out;
  duplicates += other.duplicates;
  high_ratio += other.high_ratio;
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
  if (lines == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the ", name, " text (", file, ") is empty"));
  }
  if (skipped.total() == lines) {
    return absl::InvalidArgumentError(absl::StrCat("no line is left of the ", name, " text (", file,
                                                   "): ", DescribeSkipped(skipped, lines, options), "; ",
                                                   Advice(skipped, options)));
  }
  if (ShareOf(skipped, lines) <= options.most_skipped) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "more of the %s text (%s) is skipped than the %.3g%% that --max-skipped allows: %s; %s, or raise --max-skipped",
      name, file, 100 * options.most_skipped, DescribeSkipped(skipped, lines, options), Advice(skipped, options)));
}

}  // namespace hadal
