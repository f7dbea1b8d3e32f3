// Returns a tensor's values as floats in host memory: for code that inspects a run, not for kernels.
#pragma once

#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Waits for the stream. REQUIRES: contiguous.
std::vector<float> HostValues(const Stream& stream, const ConstAnyMatrix& matrix);

}  // namespace hadal
