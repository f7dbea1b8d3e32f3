// A tensor's values as floats in the host's memory: for those who look at a run, not for its kernels.
#pragma once

#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Waits for the stream.  REQUIRES: contiguous.
std::vector<float> HostValues(const Stream& stream, const ConstAnyMatrix& matrix);

}  // namespace hadal
