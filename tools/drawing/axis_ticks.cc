#include "tools/drawing/axis_ticks.h"

#include <algorithm>
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

std::vector<double> LogarithmicTicks(double low, double high, int most) {
  if (!(high > low) || most < 1) return {};
  const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  const int every = std::max(1, (last - first + most - 1) / most);
  std::vector<double> powers, between;
  for (int exponent = first; exponent <= last; ++exponent) {
    for (const int factor : {1, 2, 5}) {
      const double tick = factor * std::pow(10.0, exponent);
      if (tick < low * (1 - 1e-9) || tick > high * (1 + 1e-9)) continue;
      between.push_back(tick);
      if (factor == 1 && (exponent - first) % every == 0) powers.push_back(tick);
    }
  }
  if (powers.size() >= 2) return powers;
  return between.size() >= 2 ? between : AxisTicks(low, high, most);
}

std::string TickLabel(double tick) { return absl::StrFormat("%.6g", tick); }

}  // namespace hadal
