#include "tools/drawing/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "tools/drawing/axis_ticks.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

using Point = std::pair<double, double>;

bool IsFinite(const Point& point) { return std::isfinite(point.first) && std::isfinite(point.second); }

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Ensures that the range is not empty.
  void Settle() {
    if (low > high) *this = {0, 1};
    if (low == high) {
      const double pad = low == 0 ? 1 : 0.05 * std::abs(low);
      low -= pad;
      high += pad;
    }
  }
};

class Drawing {
 public:
  static constexpr double kLeft = 74, kRight = 16, kBottom = 42, kLegendTop = 35, kLegendLine = 15;
  struct LegendEntry {
    std::string name;
    double x = 0, y = 0;
  };

  // Where the names stand. Those that do not fit continue on the next line.
  static std::vector<LegendEntry> PlaceLegend(const LineChart& chart) {
    std::vector<LegendEntry> legend;
    double x = kLeft, y = kLegendTop;
    for (const ChartSeries& series : chart.series) {
      LegendEntry entry{.name = LegendName(series)};
      const double width = 17 + 6.6 * static_cast<double>(entry.name.size());
      if (x > kLeft && x + width > chart.width - kRight) {
        x = kLeft;
        y += kLegendLine;
      }
      entry.x = x;
      entry.y = y;
      legend.push_back(std::move(entry));
      x += width + 16;
    }
    return legend;
  }

  static double HeightOf(const LineChart& chart, const std::vector<LegendEntry>& legend) {
    return chart.height + (legend.empty() ? 0 : legend.back().y - kLegendTop);
  }

  explicit Drawing(const LineChart& chart)
      : chart_(chart), legend_(PlaceLegend(chart)), height_(HeightOf(chart, legend_)), svg_(chart.width, height_) {
    for (const ChartSeries& series : chart.series) {
      for (const Point& point : series.points) {
        if (!IsFinite(point) || LeftOut(point)) continue;
        x_.Take(point.first);
        y_.Take(Height(point.second));
      }
    }
    if (chart.from_zero) y_.Take(0);
    x_.Settle();
    y_.Settle();
    if (!chart.from_zero || y_.low < 0) y_.low -= 0.04 * (y_.high - y_.low);
    y_.high += 0.04 * (y_.high - y_.low);
  }

  std::string Draw() && {
    svg_.Text(kLeft, 16, chart_.title, Svg::Anchor::kStart, 14, "#111");
    Legend();
    Axes();
    for (const ChartSeries& series : chart_.series) Series(series);
    return std::move(svg_).Finish();
  }

 private:
  static std::string LegendName(const ChartSeries& series) {
    const auto bad =
        std::count_if(series.points.begin(), series.points.end(), [](const Point& p) { return !IsFinite(p); });
    return bad > 0 ? absl::StrCat(series.name, " (", bad, " not finite)") : series.name;
  }

  double X(double x) const { return kLeft + (chart_.width - kRight - kLeft) * (x - x_.low) / (x_.high - x_.low); }
  bool LeftOut(const Point& point) const { return chart_.logarithmic && point.second <= 0; }
  double Height(double y) const { return chart_.logarithmic ? std::log10(y) : y; }
  double Y(double y) const {
    const double bottom = height_ - kBottom;
    return bottom - (bottom - top_) * (Height(y) - y_.low) / (y_.high - y_.low);
  }
  std::vector<double> Ticks() const {
    constexpr int kMost = 5;
    if (!chart_.logarithmic) return AxisTicks(y_.low, y_.high, kMost);
    return LogarithmicTicks(std::pow(10, y_.low), std::pow(10, y_.high), kMost);
  }

  // The plot begins below it.
  void Legend() {
    top_ = kLegendTop + 13;
    for (size_t i = 0; i < legend_.size(); ++i) {
      const ChartSeries& series = chart_.series[i];
      const auto& [name, x, y] = legend_[i];
      if (series.dots) {
        svg_.Circle(x + 6, y - 4, 3, series.colour);
      } else {
        svg_.Rect(x, y - 7, 12, 4, series.colour);
      }
      svg_.Text(x + 17, y, name, Svg::Anchor::kStart, 11);
      top_ = y + 13;
    }
  }

  void Axes() {
    const double bottom = height_ - kBottom, right = chart_.width - kRight;
    for (const double tick : Ticks()) {
      svg_.Line(kLeft, Y(tick), right, Y(tick), "#e4e4e4");
      svg_.Text(kLeft - 6, Y(tick) + 4, TickLabel(tick), Svg::Anchor::kEnd, 11, "#555");
    }
    for (const double tick : AxisTicks(x_.low, x_.high, 6)) {
      svg_.Line(X(tick), bottom, X(tick), bottom + 4, "#999");
      svg_.Text(X(tick), bottom + 17, TickLabel(tick), Svg::Anchor::kMiddle, 11, "#555");
    }
    svg_.Line(kLeft, bottom, right, bottom, "#999");
    svg_.Text((kLeft + right) / 2, height_ - 8, chart_.x_label, Svg::Anchor::kMiddle, 11, "#555");
    svg_.Text(right, 16, chart_.y_label, Svg::Anchor::kEnd, 11, "#555");
  }

  void Series(const ChartSeries& series) {
    std::vector<Point> line;
    for (const Point& point : ThinPoints(series.points, static_cast<int>(chart_.width - kLeft - kRight))) {
      if (LeftOut(point)) continue;
      if (!IsFinite(point)) {
        Stroke(series, line);
        line.clear();
      } else {
        line.emplace_back(X(point.first), Y(point.second));
      }
    }
    Stroke(series, line);
  }

  void Stroke(const ChartSeries& series, const std::vector<Point>& line) {
    if (series.dots || line.size() == 1) {
      for (const auto& [x, y] : line) svg_.Circle(x, y, 3, series.colour);
    } else {
      svg_.Polyline(line, series.colour);
    }
  }

  const LineChart& chart_;
  const std::vector<LegendEntry> legend_;
  const double height_;  // with all lines of the legend
  Range x_, y_;          // y_: as Height()
  double top_ = 0;       // of the plot, below the legend
  Svg svg_;
};

}  // namespace

std::vector<Point> ThinPoints(const std::vector<Point>& points, int columns) {
  if (static_cast<int64_t>(points.size()) <= 2 * columns) return points;
  std::vector<Point> thinned;
  for (int column = 0; column < columns; ++column) {
    const size_t begin = points.size() * column / columns, end = points.size() * (column + 1) / columns;
    std::set<Point> kept;  // by x
    const Point *low = nullptr, *high = nullptr, *gap = nullptr;
    for (const Point& point : std::span(points).subspan(begin, end - begin)) {
      if (!IsFinite(point)) {
        gap = &point;
        continue;
      }
      if (low == nullptr || point.second < low->second) low = &point;
      if (high == nullptr || point.second > high->second) high = &point;
    }
    for (const Point* point : {low, high, gap}) {
      if (point != nullptr) kept.insert(*point);
    }
    thinned.insert(thinned.end(), kept.begin(), kept.end());
  }
  return thinned;
}

double LineChartHeight(const LineChart& chart) { return Drawing::HeightOf(chart, Drawing::PlaceLegend(chart)); }

std::string DrawLineChart(const LineChart& chart) { return Drawing(chart).Draw(); }

}  // namespace hadal
