#include "tools/drawing/axis_ticks.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace hadal {

std::vector<double> AxisTicks(double low, double high, int most) {
  if (!(high > low) || most < 1) return {};
  const double rough = (high - low) / most;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= most; ++i) {
    const double tick = (first + i) * step;
    if (tick > high + 1e-9 * step) break;
    ticks.push_back(tick == 0 ? 0.0 : tick);
  }
  return ticks;
}

std::string TickLabel(double tick) { return absl::StrFormat("%.6g", tick); }

}  // namespace hadal
