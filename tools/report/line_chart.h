// Draws lines over a number (usually the step) as SVG: title, axes with units, legend.
//
// Lines of many points are thinned to what the width can show: the lowest and the highest value of each pixel column,
// so that spikes stay visible. Points that are not finite interrupt the line; the legend counts them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hadal {

struct ChartSeries {
  std::string name;
  std::string colour;
  std::vector<std::pair<double, double>> points;  // x ascending
  bool dots = false;                              // dots instead of a line
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;  // with its unit
  std::vector<ChartSeries> series;
  bool from_zero = false;  // whether the y axis begins at 0
  double width = 560, height = 260;
};

std::string DrawLineChart(const LineChart& chart);

// Thins to at most two points for each of `columns` equal parts of the x range.
std::vector<std::pair<double, double>> ThinPoints(const std::vector<std::pair<double, double>>& points, int columns);

}  // namespace hadal
