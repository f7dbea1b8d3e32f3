// What was learned, in the HTML report: losses, BLEU, gradient norm, learning rate and throughput over the steps, and
// translations.
//
// Training and validation nll are on one chart; the loss with label smoothing, which is another quantity, on its own.
#pragma once

#include <string>

#include "tools/report/report.h"

namespace hadal {

// The section's markup.
std::string CurvesSection(const Report& report);

}  // namespace hadal
