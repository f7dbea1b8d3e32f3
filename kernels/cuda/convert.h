// Copies a matrix into one of the other type on the device: kernels/convert.h.
//
// Eight columns per thread; 16-byte accesses if every row is 16-byte aligned and the width is a multiple of 8.
// Asynchronous.
#pragma once

#include "kernels/convert.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

void Convert(StreamHandle stream, const ConvertArgs& args);

}  // namespace hadal::cuda
