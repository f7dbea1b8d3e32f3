// Copies a matrix into one of another type on the device: the rules of kernels/convert.h.
//
// Eight columns per thread; 16-byte accesses if every row is 16-byte aligned and the width is a multiple of 8.
// Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

template <typename From, typename To>
struct ConvertArgs {
  int64_t rows = 0, width = 0;
  DeviceMatrix<const From> from;  // [R, W]
  DeviceMatrix<To> to;            // [R, W] (=)
};
template <typename From, typename To>
void Convert(StreamHandle stream, const ConvertArgs<From, To>& args);

}  // namespace hadal::cuda
