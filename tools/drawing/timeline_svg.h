// Draws a timeline as SVG: one row per rank, one bar per span, time from left to right.
//
// If the bars of a row are at least three pixels wide, each is drawn, wide ones with their label. A row with more spans
// is drawn as a raster: each pixel column shows the kind that fills most of it, so that thousands of spans need a
// bounded number of shapes. Of many rows an even selection is drawn, including the first and the last, and the drawing
// says so.
#pragma once

#include <string>
#include <vector>

namespace hadal {

struct TimelineSpan {
  double begin_seconds = 0;
  double end_seconds = 0;
  int kind = 0;       // index of a TimelineKind
  std::string label;  // "F3"; drawn if it fits
};

struct TimelineKind {
  std::string name;  // for the legend
  std::string colour;
};

struct Timeline {
  std::vector<TimelineKind> kinds;
  std::vector<std::string> row_names;            // [rows]
  std::vector<std::vector<TimelineSpan>> spans;  // [rows] in order of time, not overlapping
  double end_seconds = 0;                        // of the axis
};

struct TimelineStyle {
  double width = 1160;  // pixels
  int most_rows = 96;
};

// REQUIRES: as many row names as rows; every kind is an index into `kinds`.
std::string DrawTimeline(const Timeline& timeline, const TimelineStyle& style);

// The indices of the rows to draw of `count`: all, or `most` of them, evenly spread and including both ends.
std::vector<int> ChooseRows(int count, int most);

}  // namespace hadal
