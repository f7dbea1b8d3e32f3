#include "tools/drawing/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "tools/drawing/axis_ticks.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

constexpr double kMargin = 8, kAxisHeight = 26, kLegendHeight = 24;
constexpr double kNarrowest = 3;  // least width in pixels of a bar that is drawn separately

class Drawing {
 public:
  Drawing(const Timeline& timeline, const TimelineStyle& style)
      : timeline_(timeline),
        rows_(ChooseRows(static_cast<int>(timeline.spans.size()), style.most_rows)),
        row_height_(rows_.size() <= 32   ? 18
                    : rows_.size() <= 64 ? 10
                                         : 6),
        left_(kMargin + NameWidth()),
        right_(style.width - kMargin - 24),
        svg_(style.width, kLegendHeight + rows_.size() * row_height_ + kAxisHeight) {}

  std::string Draw() && {
    Legend();
    for (size_t i = 0; i < rows_.size(); ++i) Row(rows_[i], kLegendHeight + i * row_height_, i);
    Axis(kLegendHeight + rows_.size() * row_height_);
    return std::move(svg_).Finish();
  }

 private:
  double NameWidth() const {
    size_t longest = 0;
    for (const std::string& name : timeline_.row_names) longest = std::max(longest, name.size());
    return 7.0 * static_cast<double>(longest) + 8;
  }

  double X(double seconds) const {
    return timeline_.end_seconds > 0 ? left_ + (right_ - left_) * seconds / timeline_.end_seconds : left_;
  }

  void Legend() {
    double x = left_;
    for (const TimelineKind& kind : timeline_.kinds) {
      svg_.Rect(x, 6, 12, 12, kind.colour);
      svg_.Text(x + 17, 16, kind.name);
      x += 17 + 7.5 * static_cast<double>(kind.name.size()) + 16;
    }
    if (rows_.size() < timeline_.spans.size()) {
      svg_.Text(right_, 16, absl::StrFormat("%d of %d rows shown", rows_.size(), timeline_.spans.size()),
                Svg::Anchor::kEnd, 12, "#777");
    }
  }

  void Row(int row, double y, size_t place) {
    const size_t every = row_height_ >= 10 ? 1 : 4;  // omits names that would overlap
    if ((rows_.size() - 1 - place) % every == 0) {
      svg_.Text(left_ - 6, y + row_height_ - (row_height_ >= 18 ? 5 : 1), timeline_.row_names[row], Svg::Anchor::kEnd,
                row_height_ >= 18 ? 12 : 9);
    }
    svg_.Rect(left_, y + 1, right_ - left_, row_height_ - 2, "#f2f2f2");
    const std::vector<TimelineSpan>& spans = timeline_.spans[row];
    const bool fits = std::all_of(spans.begin(), spans.end(), [&](const TimelineSpan& span) {
      return X(span.end_seconds) - X(span.begin_seconds) >= kNarrowest;
    });
    if (fits) {
      Bars(spans, y);
    } else {
      Raster(spans, y);
    }
  }

  void Bars(const std::vector<TimelineSpan>& spans, double y) {
    for (const TimelineSpan& span : spans) {
      const double x = X(span.begin_seconds), width = X(span.end_seconds) - x;
      const TimelineKind& kind = timeline_.kinds[span.kind];
      svg_.Rect(x, y + 1, width - 0.5, row_height_ - 2, kind.colour,
                absl::StrFormat("%s %s: %.3f to %.3f ms", kind.name, span.label, 1e3 * span.begin_seconds,
                                1e3 * span.end_seconds));
      if (row_height_ >= 18 && width > 7.0 * span.label.size() + 4) {
        svg_.Text(x + width / 2, y + row_height_ - 6, span.label, Svg::Anchor::kMiddle, 10, "#fff");
      }
    }
  }

  // Run lengths of the kind that fills most of each pixel column; -1: idle.
  void Raster(const std::vector<TimelineSpan>& spans, double y) {
    const int columns = static_cast<int>(right_ - left_);
    std::vector<std::vector<double>> filled(timeline_.kinds.size(), std::vector<double>(columns, 0.0));
    for (const TimelineSpan& span : spans) {
      const double begin = X(span.begin_seconds) - left_, end = X(span.end_seconds) - left_;
      const int last = std::min(columns - 1, static_cast<int>(end));
      for (int c = std::max(0, static_cast<int>(begin)); c <= last; ++c) {
        filled[span.kind][c] += std::max(0.0, std::min(end, c + 1.0) - std::max(begin, static_cast<double>(c)));
      }
    }
    const auto kind_of = [&](int column) {
      int best = -1;
      double most = 1.0;
      for (const std::vector<double>& kind : filled) most -= kind[column];
      for (size_t k = 0; k < filled.size(); ++k) {
        if (filled[k][column] > most) most = filled[best = static_cast<int>(k)][column];
      }
      return best;
    };
    for (int begin = 0; begin < columns;) {
      const int kind = kind_of(begin);
      int end = begin + 1;
      while (end < columns && kind_of(end) == kind) ++end;
      if (kind >= 0) svg_.Rect(left_ + begin, y + 1, end - begin, row_height_ - 2, timeline_.kinds[kind].colour);
      begin = end;
    }
  }

  void Axis(double y) {
    svg_.Line(left_, y + 2, right_, y + 2, "#999");
    const bool in_seconds = timeline_.end_seconds >= 10;
    const double unit = in_seconds ? 1 : 1e-3;
    for (const double tick : AxisTicks(0, timeline_.end_seconds / unit, 8)) {
      const double x = X(tick * unit);
      svg_.Line(x, y + 2, x, y + 6, "#999");
      svg_.Text(x, y + 19, absl::StrCat(TickLabel(tick), in_seconds ? " s" : " ms"), Svg::Anchor::kMiddle, 11, "#555");
    }
  }

  const Timeline& timeline_;
  const std::vector<int> rows_;
  const double row_height_;
  const double left_, right_;
  Svg svg_;
};

}  // namespace

std::vector<int> ChooseRows(int count, int most) {
  const int shown = std::min(count, most);
  std::vector<int> rows(std::max(shown, 0));
  for (int i = 1; i < shown; ++i) rows[i] = static_cast<int>(static_cast<int64_t>(i) * (count - 1) / (shown - 1));
  return rows;
}

std::string DrawTimeline(const Timeline& timeline, const TimelineStyle& style) {
  HADAL_CHECK_EQ(timeline.row_names.size(), timeline.spans.size());
  return Drawing(timeline, style).Draw();
}

}  // namespace hadal
