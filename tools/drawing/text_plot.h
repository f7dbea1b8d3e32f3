// Plots curves as text: a frame of characters with one box-drawn line per curve, for terminals and logs.
//
//   6.52 ┤━┓
//        │ ┗━┓         ────────
//   …
//   2.10 ┤      ┗━━━━━━━━━
//        └────────────────
//         0             1,000
// A column shows the mean of its points; columns without points are interpolated. Where curves cross, the first one is
// drawn over the others. Points that are not finite are left out, and the legend counts them. If some curve falls, as a
// loss does, the frame ends at 1.25 times the highest first value of a curve, and values above it are drawn along its
// top edge, so that a diverging run does not flatten the others.
// Threads: pure function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace hadal {

struct Curve {
  std::string label;
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending
};

struct TextPlotOptions {
  int columns = 60;  // of the plotting area.  REQUIRES: ≥ 8
  int rows = 12;     // REQUIRES: ≥ 3
  std::string title;
  std::string x_label;
  bool unicode = true;  // false: ASCII
  bool color = false;
};

// Returns the plot with a newline after each line, or one line saying that there is nothing to plot.
std::string PlotCurves(absl::Span<const Curve> curves, const TextPlotOptions& options);

}  // namespace hadal
