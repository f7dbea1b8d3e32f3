#pragma once

#include <algorithm>
#include <vector>

#include "runtime/check.h"

namespace hadal {

// The mean of the two in the middle, if their number is even.  REQUIRES: at least one value.
inline double Median(std::vector<double> values) {
  HADAL_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace hadal
