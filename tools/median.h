#pragma once

#include <algorithm>
#include <vector>

#include "runtime/check.h"

namespace hadal {

// Returns the median; of an even number of values the mean of the two in the middle.  REQUIRES: at least one value.
inline double Median(std::vector<double> values) {
  HADAL_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace hadal
