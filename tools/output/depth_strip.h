// Draws gradient norms over the depth in one line of text: each column ▁▂▃▄▅▆▇█ stands for a few neighbouring sublayers
// and shows the logarithm of their norm, with the encoder left and the decoder right of a border.
//
//   ▅▅▄▄▄▃▃▃▂▂▂▂▂▃▃▃▄▄▅▆│▃▃▃▃▄▄▄▄▅▅▅▅▆▆▆▇▇▇██
// A column shows the geometric mean of its sublayers. "·" is a column whose norms are all zero, "×" one with a norm
// that is not finite. Without Unicode: levels " .:-=+*#", "0" for zero and "x" for not finite.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace hadal {

// The strip's vertical range. It widens at once and narrows slowly, so that a change of the norms moves the strip
// rather than its scale. It always spans at least one decade.
class DepthScale {
 public:
  // Takes the next step's norms into account; ignores zeros and values that are not finite.
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
  int columns = 72;  // at most; fewer if there are fewer sublayers. REQUIRES: ≥ 3
  bool unicode = true;
};

struct DepthStripText {
  std::string encoder;
  std::string border;  // empty if one side is empty
  std::string decoder;
  int columns = 0;  // of all three together
};

DepthStripText RenderDepthStrip(const DepthStrip& strip, const DepthScale& scale);

}  // namespace hadal
