// The drawings of a comparison: runs of one table overlaid, a chart a column of the table (all methods at one depth)
// and a chart a row (one method at all depths).
//
// Lines are thinned to a few dozen points (means of neighbouring steps or sublayers), so that a page with hundreds of
// lines stays small. Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison_report.h"

namespace hadal {

// Loss and validation nll over the steps, and below them the depth's instruments, as markup; "" where nothing has run.
std::string CurvesMarkup(const ComparisonReport& report, const ComparisonPanel& panel);
std::string InstrumentsMarkup(const ComparisonReport& report, const ComparisonPanel& panel);

// At most `most` points, each the mean of neighbours; a mean that is not finite interrupts the line.
std::vector<std::pair<double, double>> MeanPoints(const std::vector<std::pair<double, double>>& points, size_t most);

}  // namespace hadal
