#include "tools/drawing/text_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

constexpr double kCeiling = 1.25;  // times the highest start

// One pen per curve, reused cyclically.
struct Pen {
  const char* flat;
  const char* upright;
  const char* fall_from;  // right, then down
  const char* fall_to;    // down, then right
  const char* rise_from;  // right, then up
  const char* rise_to;    // up, then right
  Ink ink;
};
constexpr std::array<Pen, 3> kUnicodePens = {{{"━", "┃", "┓", "┗", "┛", "┏", Ink::kGood},
                                              {"─", "│", "╮", "╰", "╯", "╭", Ink::kBad},
                                              {"═", "║", "╗", "╚", "╝", "╔", Ink::kEncoder}}};
constexpr std::array<Pen, 3> kAsciiPens = {{{"*", "*", "*", "*", "*", "*", Ink::kGood},
                                            {"o", "o", "o", "o", "o", "o", Ink::kBad},
                                            {"+", "+", "+", "+", "+", "+", Ink::kEncoder}}};

struct Frame {
  double x_low = 0, x_high = 0, y_low = 0, y_high = 0;
  int columns = 0, rows = 0;

  int Column(double x) const {
    const double share = x_high > x_low ? (x - x_low) / (x_high - x_low) : 0;
    return std::clamp(static_cast<int>(std::lround(share * (columns - 1))), 0, columns - 1);
  }
  int Row(double y) const {  // 0 is the top
    const double share = (std::clamp(y, y_low, y_high) - y_low) / (y_high - y_low);
    return rows - 1 - static_cast<int>(std::lround(share * (rows - 1)));
  }
  double Value(int row) const { return y_high - (y_high - y_low) * row / (rows - 1); }
};

bool IsFinite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

// The range of all finite points; nullopt if there is none.
std::optional<Frame> FrameOf(absl::Span<const Curve> curves, const TextPlotOptions& options) {
  Frame frame{HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL, options.columns, options.rows};
  double highest_start = -HUGE_VAL;
  bool any_falls = false;
  for (const Curve& curve : curves) {
    std::optional<double> start;
    double end = 0;
    for (const auto& point : curve.points) {
      if (!IsFinite(point)) continue;
      const auto [x, y] = point;
      if (!start.has_value()) start = y;
      end = y;
      frame.x_low = std::min(frame.x_low, x);
      frame.x_high = std::max(frame.x_high, x);
      frame.y_low = std::min(frame.y_low, y);
      frame.y_high = std::max(frame.y_high, y);
    }
    if (!start.has_value()) continue;
    highest_start = std::max(highest_start, *start);
    any_falls = any_falls || end < *start;
  }
  if (frame.x_low > frame.x_high) return std::nullopt;
  if (any_falls && highest_start > 0) frame.y_high = std::min(frame.y_high, kCeiling * highest_start);
  if (frame.y_high <= frame.y_low) {
    const double margin = std::max(1e-9, 0.05 * std::fabs(frame.y_low));
    frame.y_low -= margin;
    frame.y_high = frame.y_low + 2 * margin;
  }
  return frame;
}

// The row of the curve in each column, -1 before its first and after its last point.
std::vector<int> RowsOf(const Curve& curve, const Frame& frame) {
  std::vector<double> sums(frame.columns);
  std::vector<int> counts(frame.columns);
  for (const auto& point : curve.points) {
    if (!IsFinite(point)) continue;
    sums[frame.Column(point.first)] += std::clamp(point.second, frame.y_low, frame.y_high);
    ++counts[frame.Column(point.first)];
  }
  std::vector<int> rows(frame.columns, -1);
  int previous = -1;
  for (int column = 0; column < frame.columns; ++column) {
    if (counts[column] == 0) continue;
    const double value = sums[column] / counts[column];
    rows[column] = frame.Row(value);
    for (int between = previous + 1; previous >= 0 && between < column; ++between) {
      const double start = sums[previous] / counts[previous];
      rows[between] = frame.Row(start + (value - start) * (between - previous) / (column - previous));
    }
    previous = column;
  }
  return rows;
}

using Cells = std::vector<std::vector<std::string>>;  // [rows][columns]

void DrawCurve(const std::vector<int>& rows, const Pen& pen, bool color, Cells& cells) {
  const auto put = [&](int row, size_t column, const char* glyph) {
    cells[row][column] = Paint(glyph, pen.ink, color);
  };
  for (size_t column = 0; column < rows.size(); ++column) {
    const int here = rows[column];
    if (here < 0) continue;
    const int before = column > 0 && rows[column - 1] >= 0 ? rows[column - 1] : here;
    if (before == here) {
      put(here, column, pen.flat);
      continue;
    }
    const bool falls = here > before;
    put(before, column, falls ? pen.fall_from : pen.rise_from);
    for (int row = std::min(before, here) + 1; row < std::max(before, here); ++row) put(row, column, pen.upright);
    put(here, column, falls ? pen.fall_to : pen.rise_to);
  }
}

std::string LegendEntry(const Curve& curve, const Pen& pen, bool color) {
  std::string entry = absl::StrCat(Paint(absl::StrCat(pen.flat, pen.flat), pen.ink, color), " ", curve.label);
  const auto last = std::find_if(curve.points.rbegin(), curve.points.rend(), IsFinite);
  if (last != curve.points.rend()) absl::StrAppend(&entry, " ", HumanValue(last->second, 4));
  const auto lost = std::count_if(curve.points.begin(), curve.points.end(), [](const auto& p) { return !IsFinite(p); });
  if (lost > 0) absl::StrAppend(&entry, " (", lost, lost == 1 ? " point" : " points", " not finite)");
  return entry;
}

std::string Axis(const Frame& frame, size_t margin, const TextPlotOptions& options) {
  std::string axis = absl::StrCat(std::string(margin, ' '), options.unicode ? " └" : " +");
  for (int column = 0; column < frame.columns; ++column) axis += options.unicode ? "─" : "-";
  const std::string low = HumanCount(std::llround(frame.x_low));
  const std::string high = HumanCount(std::llround(frame.x_high));
  const int gap = frame.columns - static_cast<int>(low.size() + high.size() + options.x_label.size());
  absl::StrAppend(&axis, "\n", std::string(margin + 2, ' '), low);
  if (gap >= 2) {
    absl::StrAppend(&axis, std::string(gap / 2, ' '), options.x_label, std::string(gap - gap / 2, ' '), high);
  } else {
    absl::StrAppend(&axis, " ", high);
  }
  return axis + "\n";
}

}  // namespace

std::string PlotCurves(absl::Span<const Curve> curves, const TextPlotOptions& options) {
  HADAL_CHECK_GE(options.columns, 8);
  HADAL_CHECK_GE(options.rows, 3);
  const std::optional<Frame> frame = FrameOf(curves, options);
  if (!frame.has_value()) return "nothing to plot: no finite value yet\n";
  const auto& pens = options.unicode ? kUnicodePens : kAsciiPens;
  Cells cells(options.rows, std::vector<std::string>(options.columns, " "));
  for (size_t i = curves.size(); i-- > 0;) {
    DrawCurve(RowsOf(curves[i], *frame), pens[i % pens.size()], options.color, cells);
  }

  std::string plot = options.title.empty() ? "" : options.title + "\n";
  const int labels_every = std::max(1, (options.rows - 1) / 3);
  size_t margin = 0;
  std::vector<std::string> labels(options.rows);
  for (int row = 0; row < options.rows; row += labels_every) {
    labels[row] = HumanValue(frame->Value(row), 3);
    margin = std::max(margin, labels[row].size());
  }
  for (int row = 0; row < options.rows; ++row) {
    const bool labelled = !labels[row].empty();
    absl::StrAppend(&plot, std::string(margin - labels[row].size(), ' '), labels[row],
                    options.unicode ? (labelled ? " ┤" : " │") : (labelled ? " +" : " |"));
    std::string cells_text;
    for (const std::string& cell : cells[row]) cells_text += cell;
    cells_text.erase(cells_text.find_last_not_of(' ') + 1);
    absl::StrAppend(&plot, cells_text, "\n");
  }
  plot += Axis(*frame, margin, options);
  plot += std::string(margin + 2, ' ');
  for (size_t i = 0; i < curves.size(); ++i) {
    absl::StrAppend(&plot, i == 0 ? "" : "   ", LegendEntry(curves[i], pens[i % pens.size()], options.color));
  }
  return plot + "\n";
}

}  // namespace hadal
