// Svg makes a drawing as SVG text: shapes in the order they are added, coordinates in pixels from the top left corner.
//
// The class escapes texts and titles; callers pass them unescaped. Numbers have two decimals, so that a drawing is the
// same text everywhere.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hadal {

// Escapes text for use between tags and in attributes of SVG and HTML: "&lt;" for "<" and so on. Control characters and
// bytes that are not UTF-8 become text (runtime/printable.h).
std::string EscapeMarkup(std::string_view text);

// Replaces a drawing's colours of texts, axes and grids, which suit a white page, by those for a dark page.
std::string DarkSvg(std::string_view svg);

class Svg {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  Svg(double width, double height);

  // `title`, if not empty, is the tooltip of the shape.
  void Rect(double x, double y, double width, double height, std::string_view fill, std::string_view title = "");
  void Line(double x1, double y1, double x2, double y2, std::string_view stroke, double width = 1);
  // Lines through `points`; nothing for fewer than two.
  void Polyline(const std::vector<std::pair<double, double>>& points, std::string_view stroke, double width = 1.5);
  void Circle(double x, double y, double radius, std::string_view fill, std::string_view title = "");
  // `y` is the base line. A character is about 0.6·size wide.
  void Text(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart, double size = 12,
            std::string_view fill = "#333");
  // A finished drawing, its top left corner at (x, y).
  void Place(double x, double y, std::string_view svg);

  // Returns the whole element, usable as a file of its own and inside a page.
  std::string Finish() &&;

 private:
  std::string text_;
};

}  // namespace hadal
