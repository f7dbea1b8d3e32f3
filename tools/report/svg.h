// Drawings as SVG text: shapes in the order they are added, coordinates in pixels from the top left corner.
//
// Text and titles are escaped here and nowhere else. Numbers have two decimals, so that a drawing is the same text
// everywhere.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hadal {

// "&lt;" for "<" and so on: for text between tags and in attributes, in SVG and in HTML.
std::string EscapeMarkup(std::string_view text);

class Svg {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  Svg(double width, double height);

  // `title`, where not empty, is what a pointer resting on the shape shows.
  void Rect(double x, double y, double width, double height, std::string_view fill, std::string_view title = "");
  void Line(double x1, double y1, double x2, double y2, std::string_view stroke, double width = 1);
  // Lines through `points`; nothing for fewer than two.
  void Polyline(const std::vector<std::pair<double, double>>& points, std::string_view stroke, double width = 1.5);
  void Circle(double x, double y, double radius, std::string_view fill, std::string_view title = "");
  // `y` is the base line. A character of `size` is about 0.6·size wide.
  void Text(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart, double size = 12,
            std::string_view fill = "#333");

  // The whole element; stands alone as a file and inside a page.
  std::string Finish() &&;

 private:
  std::string text_;
};

}  // namespace hadal
