// Draws lines over a number (usually the step) as SVG: title, axes with units, legend.
//
// Lines of many points are thinned to what the width can show: the lowest and the highest value of each pixel column,
// so that spikes stay visible. Points that are not finite interrupt the line; the legend counts them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hadal {

// Colours of the runs of a chart, in their order.
inline constexpr const char* kSeriesColours[] = {"#3b7dd8", "#d9822b", "#3aa675", "#e05a5a", "#6b4fa0", "#8d6e63",
                                                 "#14746f", "#999999", "#c2559d", "#b8a100", "#1f3f77", "#7a9a01",
                                                 "#7fb3f0", "#7d1f1f", "#2ec4d6", "#333333", "#f0a58f", "#a58be0"};

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
  bool from_zero = false;    // whether the y axis begins at 0
  bool logarithmic = false;  // the y axis; leaves out values of 0 and less. Excludes from_zero.
  double width = 560, height = 260;
};

std::string DrawLineChart(const LineChart& chart);
// Of the picture: chart.height, and more for each further line of its legend.
double LineChartHeight(const LineChart& chart);

// Thins to at most two points, and one that is not finite, for each of `columns` equal parts of the x range.
std::vector<std::pair<double, double>> ThinPoints(const std::vector<std::pair<double, double>>& points, int columns);

}  // namespace hadal
