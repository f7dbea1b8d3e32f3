// A strip over the depth: one column of ▁▂▃▄▅▆▇█ for a few neighbouring sublayers, its height the logarithm of their
// gradient norm, encoder left and decoder right of a border.
//
//   ▅▅▄▄▄▃▃▃▂▂▂▂▂▃▃▃▄▄▅▆│▃▃▃▃▄▄▄▄▅▅▅▅▆▆▆▇▇▇██
// A column shows the geometric mean of its sublayers. "·" is a column whose norms are all zero, "×" one that holds a
// norm that is not finite. Without Unicode: levels " .:-=+*#" with 1 as " ", "0" for zero and "x".
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace hadal {

// The strip's vertical range. It widens at once and narrows slowly, so that a change of the norms moves the strip and
// not the scale under it; it never spans less than one decade.
class DepthScale {
 public:
  // Takes the next step's norms into account. Zeros and values that are not finite say nothing.
  void Follow(absl::Span<const float> norms);

  bool known() const { return known_; }
  double low() const { return low_; }    // log10
  double high() const { return high_; }  // log10

 private:
  bool known_ = false;
  double low_ = 0;
  double high_ = 1;
};

struct DepthStrip {
  absl::Span<const float> norms;  // [sublayers]
  int32_t encoder_sublayers = 0;
  int columns = 72;  // at most; fewer where there are fewer sublayers. REQUIRES: ≥ 3
  bool unicode = true;
};

struct DepthStripText {
  std::string encoder;
  std::string border;  // empty where one side is
  std::string decoder;
  int columns = 0;  // of all three together
};

DepthStripText RenderDepthStrip(const DepthStrip& strip, const DepthScale& scale);

}  // namespace hadal
