// The cleaning report of `hadal prepare`: counts of defects in each text of each split, and of skipped lines.
// Thread safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/corpus/prepare.h"

namespace hadal {

// Skipped pairs of lines, by reason.
struct SkippedLines {
  int64_t invalid = 0;   // not UTF-8, or broken JSON
  int64_t empty = 0;     // a side is blank, or has no tokens
  int64_t too_long = 0;  // a side has more than max_tokens
  // By the filters of training text:
  int64_t held_out = 0;    // PrepareOptions::drop_test_overlap
  int64_t duplicates = 0;  // PrepareOptions::drop_duplicates
  int64_t high_ratio = 0;  // PrepareOptions::max_length_ratio

  int64_t filtered() const { return held_out + duplicates + high_ratio; }
  int64_t total() const { return invalid + empty + too_long + filtered(); }
  SkippedLines& operator+=(const SkippedLines& other);
};

// "skipped 12 of 345 (3.48%): 2 with an empty side, 10 longer than 256 tokens".  REQUIRES: lines ≥ 1.
std::string DescribeSkipped(const SkippedLines& skipped, int64_t lines, const PrepareOptions& options);

// Returns a warning with a remedy if more than half of the lines of the text `name` (first file: `file`) are skipped,
// else "".
std::string MostlySkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options);

// Checks a text of which `skipped` lines are skipped; `name` and `file` as above.
// Errors: InvalidArgument, with the counts and a remedy, if no line is left or if the skipped share exceeds
// options.most_skipped.
absl::Status CheckSkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options);

// Counts of one text, in pairs of lines (lines of plain text). A pair may be in several counts, but in `skipped` only
// in one.
struct TextFindings {
  std::string name;  // CorpusName
  int64_t lines = 0;
  // Of the pairs that are UTF-8 and have two sides:
  int64_t held_out = 0;          // training pairs that validation or test text of this direction has
  int64_t duplicates = 0;        // an earlier pair of the direction is equal
  int64_t repeated_sources = 0;  // an earlier pair has the source, with any target
  int64_t repeated_targets = 0;
  int64_t equal_sides = 0;  // the source is the target
  // Of the pairs that are encoded and not too long:
  int64_t high_ratio = 0;  // one side has more than LengthRatio times the other's tokens
  SkippedLines skipped;

  int64_t kept() const { return lines - skipped.total(); }
};

struct SplitFindings {
  std::string split;
  bool training = false;
  std::vector<TextFindings> texts;
};

// The length ratio above which pairs are counted in high_ratio: options.max_length_ratio, or 3 if that is not set.
double LengthRatio(const PrepareOptions& options);

// The sum over the texts.
TextFindings Total(const std::vector<TextFindings>& texts);

// Returns a table for the terminal with a row for each text and one for the sum of each split; a split with more than
// 20 texts has only the latter. Columns in which all counts are 0 are left out.
std::string CleaningTable(const std::vector<SplitFindings>& splits, const PrepareOptions& options);

// Returns all counts: {"max_tokens", "length_ratio", "splits": {"train": [{"text", "pairs", …, "kept"}, …], …}}. A text
// for training also has "dropped": {"held_out", "duplicates", "high_ratio"}, with those filters that are on. `pairs` is
// the sum of `kept`, `not_utf8`, `empty`, `too_long` and the counts in `dropped`.
std::string CleaningJson(const std::vector<SplitFindings>& splits, const PrepareOptions& options);

}  // namespace hadal
