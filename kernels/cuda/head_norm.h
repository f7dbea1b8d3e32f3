// Head norm on the device: kernels/head_norm.h.
// Numerics: fp32. One warp has one head of a row, eight columns a lane; a sum over columns adds a lane's in ascending
// order and the lanes as a butterfly. d_scale and d_shift: a warp of a block of kHeadNormRowBlock rows adds (row, head)
// pairs w, w + 8, …; then the warps in ascending order, then the blocks as column_merge.h. Deterministic. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/head_norm.h"

namespace hadal::cuda {

inline constexpr int64_t kWidestHeadNorm = 256;

void HeadNormForward(StreamHandle stream, const HeadNormForwardArgs& args);
void HeadNormBackward(StreamHandle stream, const HeadNormBackwardArgs& args);

}  // namespace hadal::cuda
