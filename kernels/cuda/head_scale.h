// Head scale on the device: kernels/head_scale.h.
// Numerics: fp32. A head's sum runs over blocks of kHeadScaleRowBlock rows. In a block thread t adds eights of columns
// t, t + 256, … in the order of rows; the lanes of a warp are added as a butterfly, then warps in ascending order. One
// warp per head adds the blocks: lane l adds blocks l, l + 32, …, then the lanes are added as a butterfly. The order
// depends only on the shape: deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/head_scale.h"

namespace hadal::cuda {

void HeadScaleForward(StreamHandle stream, const HeadScaleForwardArgs& args);
void HeadScaleBackward(StreamHandle stream, const HeadScaleBackwardArgs& args);

}  // namespace hadal::cuda
