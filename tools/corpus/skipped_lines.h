// Lines of text that `hadal prepare` leaves out: how many, why, and how many are too many.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tools/corpus/prepare.h"

namespace hadal {

// Pairs of lines left out, by reason.
struct SkippedLines {
  int64_t invalid = 0;   // not UTF-8
  int64_t empty = 0;     // a side is blank, or has no tokens
  int64_t too_long = 0;  // a side has more than max_tokens

  int64_t total() const { return invalid + empty + too_long; }
};

// "skipped 12 of 345 (3.48%): 2 with an empty side, 10 longer than 256 tokens".  REQUIRES: lines ≥ 1.
std::string DescribeSkipped(const SkippedLines& skipped, int64_t lines, const PrepareOptions& options);

// "" unless most of the lines of the text `name` (its first file: `file`) are left out; else a sentence that says so,
// and what to try.
std::string MostlySkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options);

// Errors: InvalidArgument where nothing is left, or more is left out than options.most_skipped allows, with the counts
// and what to try.
absl::Status CheckSkipped(const std::string& name, const std::string& file, int64_t lines, const SkippedLines& skipped,
                          const PrepareOptions& options);

}  // namespace hadal
