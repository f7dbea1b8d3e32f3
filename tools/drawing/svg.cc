#include "tools/drawing/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/printable.h"

namespace hadal {
namespace {

// Ends a shape: closed, or with a title inside.
std::string Close(std::string_view name, std::string_view title) {
  if (title.empty()) return "/>\n";
  return absl::StrFormat("><title>%s</title></%s>\n", EscapeMarkup(title), std::string(name));
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  return absl::StrReplaceAll(Printable(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string DarkSvg(std::string_view svg) {
  return absl::StrReplaceAll(std::string(svg), {{"\"#111\"", "\"#e6edf3\""},
                                                {"\"#333\"", "\"#c9d1d9\""},
                                                {"\"#555\"", "\"#9da7b1\""},
                                                {"\"#999\"", "\"#6e7681\""},
                                                {"\"#e4e4e4\"", "\"#30363d\""}});
}

Svg::Svg(double width, double height)
    : text_(
          absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
                          "%.0f\" font-family=\"sans-serif\">\n",
                          width, height, width, height)) {}

void Svg::Rect(double x, double y, double width, double height, std::string_view fill, std::string_view title) {
  absl::StrAppendFormat(&text_, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y, width,
                        height, std::string(fill));
  absl::StrAppend(&text_, Close("rect", title));
}

void Svg::Line(double x1, double y1, double x2, double y2, std::string_view stroke, double width) {
  absl::StrAppendFormat(&text_,
                        "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\" stroke-width=\"%.2f\"/>\n",
                        x1, y1, x2, y2, std::string(stroke), width);
}

void Svg::Polyline(const std::vector<std::pair<double, double>>& points, std::string_view stroke, double width) {
  if (points.size() < 2) return;
  absl::StrAppend(&text_, "<polyline points=\"");
  for (const auto& [x, y] : points) absl::StrAppendFormat(&text_, "%.2f,%.2f ", x, y);
  absl::StrAppendFormat(&text_, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.2f\"/>\n", std::string(stroke), width);
}

void Svg::Circle(double x, double y, double radius, std::string_view fill, std::string_view title) {
  absl::StrAppendFormat(&text_, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" fill=\"%s\"", x, y, radius,
                        std::string(fill));
  absl::StrAppend(&text_, Close("circle", title));
}

void Svg::Text(double x, double y, std::string_view text, Anchor anchor, double size, std::string_view fill) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  absl::StrAppendFormat(&text_,
                        "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.1f\" fill=\"%s\" text-anchor=\"%s\">%s</text>\n", x,
                        y, size, std::string(fill), kAnchors[static_cast<int>(anchor)], EscapeMarkup(text));
}

void Svg::Place(double x, double y, std::string_view svg) {
  absl::StrAppendFormat(&text_, "<g transform=\"translate(%.2f %.2f)\">\n%s</g>\n", x, y, std::string(svg));
}

std::string Svg::Finish() && { return std::move(text_) + "</svg>\n"; }

}  // namespace hadal
