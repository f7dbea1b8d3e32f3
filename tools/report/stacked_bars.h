// Horizontal stacked bars as SVG: one bar a row, one colour a part, the row's total behind it.
//
// Parts below zero (gains) are drawn to the left of the zero line. Of many rows an even selection is shown
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

// REQUIRES: as many values as parts in each row.
std::string DrawStackedBars(const StackedBars& bars);

}  // namespace hadal
