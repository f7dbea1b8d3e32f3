// Lays out the progress line: labelled values, of which the least important are dropped in a narrow window.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/metrics_sink.h"
#include "tools/output/terminal.h"

namespace hadal {

enum class Ink { kPlain, kDim, kBold, kGood, kBad, kEncoder, kDecoder };

// `text` in the ink's colour if `color`, else unchanged.
std::string Paint(std::string_view text, Ink ink, bool color);

// Width in columns of UTF-8 text without escapes, assuming that each character is one column wide.
int DisplayWidth(std::string_view text);

// The first `columns` columns of such text.
std::string CutToWidth(std::string_view text, int columns);

struct LineSegment {
  std::string label;  // may be empty
  std::string value;
  Ink ink = Ink::kPlain;  // of the value; labels are dim
  int rank = 0;           // importance; 0 is kept longest
};

// Joins the segments, two spaces apart, in at most `columns` columns. Drops segments of the highest rank first (of
// equals, the right-most); truncates the last one if it is still too wide.
std::string LayOutLine(std::vector<LineSegment> segments, int columns, bool color);

// The segments of a step. A live style adds the bar and omits what only logs need (elapsed time).
std::vector<LineSegment> StepSegments(const StepMetrics& metrics, const TerminalStyle& style);

std::vector<LineSegment> ValidationSegments(const ValidationMetrics& metrics);
// A line for each of the validation's corpora; with more than twelve one line with their means.
std::vector<std::string> CorpusLines(const ValidationMetrics& metrics);

}  // namespace hadal
