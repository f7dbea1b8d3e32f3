// Draws horizontal stacked bars as SVG: one bar per row, one colour per part, and the row's total after it.
//
// Parts below zero (gains) are drawn to the left of the zero line. Of many rows an even selection is drawn
// (timeline_svg.h).
#pragma once

#include <string>
#include <vector>

namespace hadal {

struct BarPart {
  std::string name;
  std::string colour;
};

struct BarRow {
  std::string name;
  std::vector<double> values;  // [parts]
  std::string total;           // shown at the bar's end, with its unit
};

struct StackedBars {
  std::string title;
  std::string unit;  // of the axis: "ms", "%"
  std::vector<BarPart> parts;
  std::vector<BarRow> rows;
  double width = 1160;
};

// REQUIRES: each row has as many values as there are parts.
std::string DrawStackedBars(const StackedBars& bars);

}  // namespace hadal
