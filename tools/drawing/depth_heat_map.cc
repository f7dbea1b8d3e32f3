#include "tools/drawing/depth_heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "tools/drawing/svg.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

constexpr int kMostRows = 60, kMostColumns = 80;
constexpr int kLevels = 32;
constexpr double kLeft = 74, kRight = 92, kTop = 26, kBottom = 42;
constexpr const char* kNotFinite = "#e6194b";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Dark to light, perceptually uniform, also in greyscale.
std::string LevelColour(int level) {
  constexpr std::array<std::array<double, 3>, 6> kStops = {
      {{62, 18, 80}, {58, 74, 137}, {38, 130, 142}, {61, 172, 116}, {148, 205, 72}, {248, 228, 62}}};
  const double position = static_cast<double>(level) / (kLevels - 1) * (kStops.size() - 1);
  const size_t stop = std::min(static_cast<size_t>(position), kStops.size() - 2);
  const double share = position - static_cast<double>(stop);
  std::array<int, 3> rgb{};
  for (size_t c = 0; c < 3; ++c) {
    rgb[c] = static_cast<int>(std::lround(kStops[stop][c] + share * (kStops[stop + 1][c] - kStops[stop][c])));
  }
  return absl::StrFormat("#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

// The mean of a cell's numbers on the map's scale; NaN if there are none, infinite if one is not finite.
double CellValue(const std::vector<float>& record, size_t begin, size_t end, const DepthHeatMap& map) {
  double sum = 0;
  int count = 0;
  for (size_t s = begin; s < end; ++s) {
    double value = record[s];
    if (std::isinf(value)) return value;
    if (map.range && !std::isnan(value)) value = std::clamp(value, map.range->first, map.range->second);
    if (std::isnan(value) || (map.logarithmic && value <= 0)) continue;
    sum += map.logarithmic ? std::log10(value) : value;
    ++count;
  }
  return count == 0 ? kNone : sum / count;
}

class Drawing {
 public:
  explicit Drawing(const DepthHeatMap& map) : map_(map), svg_(map.width, map.height) {
    sublayers_ = map.records.front().size();
    for (const std::vector<float>& record : map.records) HADAL_CHECK_EQ(record.size(), sublayers_);
    rows_ = static_cast<int>(std::min<size_t>(sublayers_, kMostRows));
    columns_ = static_cast<int>(std::min<size_t>(map.records.size(), kMostColumns));
    for (int column = 0; column < columns_; ++column) {
      for (int row = 0; row < rows_; ++row) {
        double value = CellValue(map.records[RecordOf(column)], FirstOf(row), FirstOf(row + 1), map);
        // A number that is not finite shows in a record without a column, too.
        for (size_t r = column == 0 ? 0 : RecordOf(column - 1) + 1; r < RecordOf(column); ++r) {
          const double skipped = CellValue(map.records[r], FirstOf(row), FirstOf(row + 1), map);
          if (std::isinf(skipped)) value = skipped;
        }
        cells_.push_back(value);
        if (!std::isfinite(value)) continue;
        low_ = std::min(low_, value);
        high_ = std::max(high_, value);
      }
    }
    if (map.range) {
      low_ = map.logarithmic ? std::log10(map.range->first) : map.range->first;
      high_ = map.logarithmic ? std::log10(map.range->second) : map.range->second;
    }
  }

  std::string Draw() && {
    svg_.Text(kLeft, 16, map_.title, Svg::Anchor::kStart, 14, "#111");
    svg_.Text(map_.width - 4, 16, map_.unit, Svg::Anchor::kEnd, 11, "#555");
    Cells();
    Axes();
    ColourBar();
    return std::move(svg_).Finish();
  }

 private:
  size_t FirstOf(int row) const { return sublayers_ * row / rows_; }
  // The first and the last column are the first and the last record.
  size_t RecordOf(int column) const { return (map_.records.size() - 1) * column / std::max(1, columns_ - 1); }
  // Whole pixels avoid seams between cells.
  double X(int column) const { return kLeft + std::floor((map_.width - kLeft - kRight) * column / columns_); }
  double Y(double row) const {
    return map_.height - kBottom - std::floor((map_.height - kTop - kBottom) * row / rows_);
  }
  int LevelOf(double value) const {
    if (high_ <= low_) return kLevels / 2;
    return std::clamp(static_cast<int>((value - low_) / (high_ - low_) * kLevels), 0, kLevels - 1);
  }
  std::string Fill(double value) const {
    return std::isinf(value) ? std::string(kNotFinite) : LevelColour(LevelOf(value));
  }

  // Merges neighbours of one colour to one rectangle.
  void Cells() {
    for (int column = 0; column < columns_; ++column) {
      for (int row = 0, end = 0; row < rows_; row = end) {
        const double value = cells_[column * rows_ + row];
        for (end = row + 1; end < rows_ && SameColour(value, cells_[column * rows_ + end]);) ++end;
        if (!std::isnan(value)) svg_.Rect(X(column), Y(end), X(column + 1) - X(column), Y(row) - Y(end), Fill(value));
      }
    }
  }
  bool SameColour(double a, double b) const {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return Fill(a) == Fill(b);
  }

  void Axes() {
    const double bottom = map_.height - kBottom, right = map_.width - kRight;
    const double border = static_cast<double>(map_.encoder_sublayers) * rows_ / static_cast<double>(sublayers_);
    if (map_.encoder_sublayers > 0 && map_.encoder_sublayers < static_cast<int32_t>(sublayers_)) {
      svg_.Line(kLeft - 4, Y(border), right, Y(border), "#ffffff", 2);
      svg_.Text(kLeft - 8, (Y(0) + Y(border)) / 2 + 4, "encoder", Svg::Anchor::kEnd, 11, "#555");
      svg_.Text(kLeft - 8, (Y(border) + Y(rows_)) / 2 + 4, "decoder", Svg::Anchor::kEnd, 11, "#555");
    }
    svg_.Line(kLeft, bottom, right, bottom, "#999");
    constexpr double kLabelWidth = 55;  // of a step of six digits, with room
    const int labels = std::clamp(static_cast<int>((map_.width - kLeft - kRight) / kLabelWidth), 1, 6);
    const int every = std::max(1, (columns_ + labels - 1) / labels);
    for (int column = 0; column < columns_; column += every) {
      const double x = (X(column) + X(column + 1)) / 2;
      svg_.Line(x, bottom, x, bottom + 4, "#999");
      svg_.Text(x, bottom + 17, absl::StrCat(map_.columns[RecordOf(column)]), Svg::Anchor::kMiddle, 11, "#555");
    }
    svg_.Text((kLeft + right) / 2, map_.height - 8, map_.x_label, Svg::Anchor::kMiddle, 11, "#555");
  }

  void ColourBar() {
    const double x = map_.width - kRight + 14, height = Y(0) - Y(rows_);
    if (std::any_of(cells_.begin(), cells_.end(), [](double value) { return std::isinf(value); })) {
      svg_.Rect(x, Y(0) + 10, 12, 12, kNotFinite);
      svg_.Text(x + 16, Y(0) + 20, "not finite", Svg::Anchor::kStart, 11, "#555");
    }
    if (low_ > high_) return;
    const auto y = [&](int level) { return Y(0) - std::floor(height * level / kLevels); };  // whole pixels, as cells
    for (int level = 0; level < kLevels; ++level) {
      svg_.Rect(x, y(level + 1), 12, y(level) - y(level + 1), LevelColour(level));
    }
    const auto label = [this](double value) { return HumanValue(map_.logarithmic ? std::pow(10, value) : value, 3); };
    svg_.Text(x + 16, Y(rows_) + 9, label(high_), Svg::Anchor::kStart, 11, "#555");
    svg_.Text(x + 16, Y(rows_ / 2.0) + 4, label((low_ + high_) / 2), Svg::Anchor::kStart, 11, "#555");
    svg_.Text(x + 16, Y(0), label(low_), Svg::Anchor::kStart, 11, "#555");
  }

  const DepthHeatMap& map_;
  size_t sublayers_ = 0;
  int rows_ = 0, columns_ = 0;
  std::vector<double> cells_;  // [columns · rows]
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
  Svg svg_;
};

}  // namespace

std::optional<std::pair<double, double>> CommonRange(const std::vector<DepthHeatMap>& maps) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const DepthHeatMap& map : maps) {
    for (const std::vector<float>& record : map.records) {
      for (const double value : record) {
        if (!std::isfinite(value) || (map.logarithmic && value <= 0)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
  }
  return low <= high ? std::optional(std::pair(low, high)) : std::nullopt;
}

std::string DrawDepthHeatMap(const DepthHeatMap& map) {
  HADAL_CHECK(!map.records.empty());
  HADAL_CHECK_EQ(map.columns.size(), map.records.size());
  return Drawing(map).Draw();
}

}  // namespace hadal
