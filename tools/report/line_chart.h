// A chart of lines over a number (a step, mostly), as SVG: title, axes with units, legend.
//
// Lines of many points are thinned to what the width can show: of each pixel column the lowest and the highest value,
// so that spikes stay visible. Points that are not finite interrupt the line and are counted in the legend.
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
  bool from_zero = false;  // the y axis begins at 0
  double width = 560, height = 260;
};

std::string DrawLineChart(const LineChart& chart);

// The thinning: at most two points for each of `columns` equal parts of the x range.
std::vector<std::pair<double, double>> ThinPoints(const std::vector<std::pair<double, double>>& points, int columns);

}  // namespace hadal
