// The depth in the HTML report: the instruments' records (runtime/depth_metrics.h) as heat maps, depth upwards and
// steps to the right, and as curves over the depth at a few steps.
#pragma once

#include <string>

#include "tools/report/report.h"

namespace hadal {

// The section's markup; "" if no run has recorded the depth.
std::string DepthSection(const Report& report);

}  // namespace hadal
