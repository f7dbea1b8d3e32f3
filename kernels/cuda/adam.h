// Adam over a flat shard on the device, in one pass over memory: the formula of kernels/adam.h, and
//   - unscale and clip: both are part of gradient_scale, which the host computes from the step's norm;
//   - finite check: if the step's norm is not finite, the host sets apply = 0 and the kernel changes nothing. A
//     parameter that is not finite after the update sets *non_finite to 1 (never cleared here);
//   - write-back: the updated parameter is also written as BFloat16, the copy that products read.
// The scalars are read from device memory, so that a captured graph can be replayed for another step.
// With the write-back a parameter moves 30 bytes (16 read, 14 written), which should take longer than the
// arithmetic (not measured).
// Numerics: fp32 per element, with the operations of kernels/cpu/adam.cc in the same order; elements are independent.
// 16-byte accesses if every pointer is 16-byte aligned. Asynchronous.
#pragma once

#include "kernels/adam.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

// `scalars`: one; those of `args` are not used. `non_finite`: one, or null.
void AdamStep(StreamHandle stream, const AdamArgs& args, DevicePointer<const AdamScalars> scalars,
              DevicePointer<int32_t> non_finite = {});

}  // namespace hadal::cuda
