#include "tools/output/depth_strip.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int kShades = 8;
constexpr double kLeastDecades = 1;
constexpr double kNarrowing = 0.05;  // share of the surplus range removed each step

using Glyphs = std::array<const char*, kShades + 2>;  // the levels, all-zero, not finite
constexpr Glyphs kUnicode = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█", "·", "×"};
constexpr Glyphs kAscii = {" ", ".", ":", "-", "=", "+", "*", "#", "0", "x"};

const char* GlyphOf(absl::Span<const float> norms, const DepthScale& scale, const Glyphs& glyphs) {
  double sum = 0;
  int positive = 0;
  for (const float norm : norms) {
    if (!std::isfinite(norm)) return glyphs[kShades + 1];
    if (norm <= 0) continue;
    sum += std::log10(static_cast<double>(norm));
    ++positive;
  }
  if (positive == 0) return glyphs[kShades];
  const double height = (sum / positive - scale.low()) / (scale.high() - scale.low());
  return glyphs[std::clamp(static_cast<int>(height * kShades), 0, kShades - 1)];
}

std::string RenderSide(absl::Span<const float> norms, int columns, const DepthScale& scale, const Glyphs& glyphs) {
  std::string side;
  for (int column = 0; column < columns; ++column) {
    const size_t begin = norms.size() * column / columns;
    const size_t end = norms.size() * (column + 1) / columns;
    side += GlyphOf(norms.subspan(begin, end - begin), scale, glyphs);
  }
  return side;
}

}  // namespace

void DepthScale::Follow(absl::Span<const float> norms) {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const float norm : norms) {
    if (!std::isfinite(norm) || norm <= 0) continue;
    low = std::min(low, std::log10(static_cast<double>(norm)));
    high = std::max(high, std::log10(static_cast<double>(norm)));
  }
  if (low > high) return;
  const double missing = std::max(0.0, kLeastDecades - (high - low));
  low -= missing / 2;
  high += missing / 2;
  low_ = !known_ || low < low_ ? low : low_ + kNarrowing * (low - low_);
  high_ = !known_ || high > high_ ? high : high_ + kNarrowing * (high - high_);
  known_ = true;
}

DepthStripText RenderDepthStrip(const DepthStrip& strip, const DepthScale& scale) {
  HADAL_CHECK_GE(strip.columns, 3);
  const Glyphs& glyphs = strip.unicode ? kUnicode : kAscii;
  const size_t border = std::min(strip.norms.size(), static_cast<size_t>(std::max(0, strip.encoder_sublayers)));
  const auto encoder = strip.norms.first(border);
  const auto decoder = strip.norms.subspan(border);
  const bool both = !encoder.empty() && !decoder.empty();
  const int sublayers = static_cast<int>(strip.norms.size());
  const int room = std::min(sublayers, strip.columns - (both ? 1 : 0));
  int encoder_columns =
      sublayers == 0 ? 0 : static_cast<int>(std::lround(room * static_cast<double>(border) / sublayers));
  if (both) encoder_columns = std::clamp(encoder_columns, 1, room - 1);

  DepthStripText text;
  text.encoder = RenderSide(encoder, encoder_columns, scale, glyphs);
  text.border = !both ? "" : strip.unicode ? "│" : "|";
  text.decoder = RenderSide(decoder, room - encoder_columns, scale, glyphs);
  text.columns = room + (both ? 1 : 0);
  return text;
}

}  // namespace hadal
