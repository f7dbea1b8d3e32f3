#include "tools/drawing/stacked_bars.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "tools/drawing/axis_ticks.h"
#include "tools/drawing/svg.h"
#include "tools/drawing/timeline_svg.h"
#include "tools/output/progress_line.h"

namespace hadal {
namespace {

constexpr int kMostRows = 64;
constexpr double kRowHeight = 22, kLegendTop = 31, kLegendHeight = 18, kAxisHeight = 34, kTotalWidth = 110;

// Positions of the legend's entries: as many per line as fit.
struct Legend {
  struct Place {
    double x = 0;
    int line = 0;
  };
  std::vector<Place> places;
  int lines = 1;

  explicit Legend(const StackedBars& bars) {
    constexpr double kLeft = 8;
    double x = kLeft;
    for (const BarPart& part : bars.parts) {
      const double width = 17 + 7.2 * static_cast<double>(part.name.size()) + 14;
      if (x > kLeft && x + width > bars.width) {
        x = kLeft;
        ++lines;
      }
      places.push_back({x, lines - 1});
      x += width;
    }
  }
};

class Drawing {
 public:
  explicit Drawing(const StackedBars& bars)
      : bars_(bars),
        rows_(ChooseRows(static_cast<int>(bars.rows.size()), kMostRows)),
        legend_(bars),
        top_(kLegendTop + kLegendHeight * legend_.lines + 5),
        svg_(bars.width, top_ + kRowHeight * rows_.size() + kAxisHeight) {
    int longest = 0;
    for (const BarRow& row : bars.rows) {
      HADAL_CHECK_EQ(row.values.size(), bars.parts.size());
      longest = std::max(longest, DisplayWidth(row.name));
      double gains = 0, losses = 0;
      for (const double value : row.values) (value < 0 ? gains : losses) += value;
      low_ = std::min(low_, gains);
      high_ = std::max(high_, losses);
    }
    if (high_ <= low_) high_ = low_ + 1;
    left_ = 7.0 * std::min(longest, 40) + 20;
    right_ = bars.width - kTotalWidth;
  }

  std::string Draw() && {
    svg_.Text(8, 18, bars_.title, Svg::Anchor::kStart, 14, "#111");
    if (rows_.size() < bars_.rows.size()) {
      svg_.Text(right_, 18, absl::StrFormat("%d of %d rows shown", rows_.size(), bars_.rows.size()), Svg::Anchor::kEnd,
                12, "#777");
    }
    Explain();
    Axis();
    for (size_t i = 0; i < rows_.size(); ++i) Row(bars_.rows[rows_[i]], top_ + kRowHeight * i);
    svg_.Line(X(0), top_, X(0), top_ + kRowHeight * rows_.size(), "#555");
    return std::move(svg_).Finish();
  }

 private:
  double X(double value) const { return left_ + (right_ - left_) * (value - low_) / (high_ - low_); }

  void Explain() {
    for (size_t i = 0; i < bars_.parts.size(); ++i) {
      const double x = legend_.places[i].x, y = kLegendTop + kLegendHeight * legend_.places[i].line;
      svg_.Rect(x, y, 12, 12, bars_.parts[i].colour);
      svg_.Text(x + 17, y + 10, bars_.parts[i].name, Svg::Anchor::kStart, 12);
    }
  }

  void Axis() {
    const double bottom = top_ + kRowHeight * rows_.size();
    for (const double tick : AxisTicks(low_, high_, 8)) {
      svg_.Line(X(tick), top_, X(tick), bottom + 4, "#e4e4e4");
      svg_.Text(X(tick), bottom + 18, absl::StrCat(TickLabel(tick), " ", bars_.unit), Svg::Anchor::kMiddle, 11, "#555");
    }
  }

  void Row(const BarRow& row, double y) {
    const std::string name = DisplayWidth(row.name) > 40 ? absl::StrCat(CutToWidth(row.name, 38), "…") : row.name;
    svg_.Text(left_ - 8, y + 15, name, Svg::Anchor::kEnd, 12);
    double gains = 0, losses = 0;
    for (size_t i = 0; i < row.values.size(); ++i) {
      const double value = row.values[i];
      double& end = value < 0 ? gains : losses;
      const double from = X(std::min(end, end + value)), to = X(std::max(end, end + value));
      end += value;
      if (to - from < 0.05) continue;
      svg_.Rect(from, y + 2, to - from, kRowHeight - 4, bars_.parts[i].colour,
                absl::StrFormat("%s: %.4g %s", bars_.parts[i].name, value, bars_.unit));
    }
    svg_.Text(std::max(X(losses), X(0)) + 6, y + 15, row.total, Svg::Anchor::kStart, 12, "#333");
  }

  const StackedBars& bars_;
  const std::vector<int> rows_;
  const Legend legend_;
  const double top_;  // of the first row
  double low_ = 0, high_ = 0, left_ = 0, right_ = 0;
  Svg svg_;
};

}  // namespace

std::string DrawStackedBars(const StackedBars& bars) { return Drawing(bars).Draw(); }

}  // namespace hadal
