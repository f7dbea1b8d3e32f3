// Lays out the progress line: labelled values, the least important dropped first where the window is narrow.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/metrics_sink.h"
#include "tools/metrics/terminal.h"

namespace hadal {

enum class Ink { kPlain, kDim, kBold, kGood, kBad, kEncoder, kDecoder };

// `text` in the ink's colour, or as it is.
std::string Paint(std::string_view text, Ink ink, bool color);

// Columns that UTF-8 text without escapes takes, all its characters being one column wide.
int DisplayWidth(std::string_view text);

// The first `columns` columns of such text.
std::string CutToWidth(std::string_view text, int columns);

struct LineSegment {
  std::string label;  // may be empty
  std::string value;
  Ink ink = Ink::kPlain;  // of the value; labels are dim
  int rank = 0;           // 0 stays longest
};

// The segments in order, two spaces apart, in at most `columns` columns: those of the highest rank go first (of equals,
// the right-hand one); a last one that is still too wide is cut.
std::string LayOutLine(std::vector<LineSegment> segments, int columns, bool color);

// A step as segments. `live` adds the bar and leaves out what only a log wants (elapsed time).
std::vector<LineSegment> StepSegments(const StepMetrics& metrics, const TerminalStyle& style);

std::vector<LineSegment> ValidationSegments(const ValidationMetrics& metrics);

}  // namespace hadal
