// Draws a comparison's curves: one chart for each column of a table (all methods at one depth) and one for each row
// (one method at all depths), with the runs overlaid.
//
// Lines are thinned to a few dozen points (means of neighbouring steps or sublayers), so that a page with hundreds of
// lines stays small. Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison_report.h"

namespace hadal {

// Markup of training and validation nll over the steps, and of the depth instruments. "" if nothing has run.
std::string CurvesMarkup(const ComparisonReport& report, const ComparisonPanel& panel);
std::string InstrumentsMarkup(const ComparisonReport& report, const ComparisonPanel& panel);

// Thins to at most `most` points, each the mean of neighbours. A mean that is not finite interrupts the line.
std::vector<std::pair<double, double>> MeanPoints(const std::vector<std::pair<double, double>>& points, size_t most);

}  // namespace hadal
