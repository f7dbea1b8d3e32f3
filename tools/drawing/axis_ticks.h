// Chooses round numbers for the ticks of an axis.
#pragma once

#include <string>
#include <vector>

namespace hadal {

// Multiples of 1, 2 or 5 times a power of ten within [low, high], at most `most` + 1 of them. Empty if high ≤ low.
std::vector<double> AxisTicks(double low, double high, int most);

// Powers of ten within [low, high], at most `most` + 1 of them; with their double and fivefold, or as AxisTicks, if
// there are fewer than two. REQUIRES: low > 0. Empty if high ≤ low.
std::vector<double> LogarithmicTicks(double low, double high, int most);

// The label of a tick, with as many digits as it needs: "0", "0.05", "2500", "1e-07".
std::string TickLabel(double tick);

}  // namespace hadal
