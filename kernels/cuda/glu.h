// Gated linear unit on the device: the formulas of kernels/glu.h. Z is the type of z and dz, Y that of y: <float,
// float>, <BFloat16, BFloat16> and <BFloat16, float>; dy is fp32.
// Numerics: fp32; elements are independent. The exponential is the device's. Asynchronous.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

template <typename Z, typename Y>
struct GluForwardArgs {
  int64_t rows = 0, width = 1;  // R, W
  DeviceMatrix<const Z> z;      // [R, 2W]
  DeviceMatrix<Y> y;            // [R, W] (=)
};
template <typename Z, typename Y>
void GluForward(StreamHandle stream, const GluForwardArgs<Z, Y>& args);

template <typename Z>
struct GluBackwardArgs {
  int64_t rows = 0, width = 1;
  DeviceMatrix<const float> dy;  // [R, W]
  DeviceMatrix<Z> z;             // [R, 2W]; becomes dz
};
template <typename Z>
void GluBackward(StreamHandle stream, const GluBackwardArgs<Z>& args);

}  // namespace hadal::cuda
