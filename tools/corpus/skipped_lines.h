// Counts the lines that `hadal prepare` skips, by reason, and checks that they are not too many.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tools/corpus/prepare.h"

namespace hadal {

// Skipped pairs of lines, by reason.
struct SkippedLines {
  int64_t invalid = 0;   // not UTF-8
  int64_t empty = 0;     // a side is blank, or has no tokens
  int64_t too_long = 0;  // a side has more than max_tokens
  // By the filters of training text:
  int64_t held_out = 0;    // drop_test_overlap
  int64_t duplicates = 0;  // drop_duplicates
  int64_t high_ratio = 0;  // max_length_ratio

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

// Errors: InvalidArgument, with the counts and a remedy, if no line is left or if more are skipped than
// options.most_skipped allows.
absl::Status CheckSkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options);

}  // namespace hadal
