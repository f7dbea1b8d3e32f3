// The GEMM limit of a training step: the time that the step's matrix products take without anything else. Its share of
// the step's time shows how close the step is to the best that its products allow.
//
// On a CPU it is computed from the speed of multiply-adds in registers (HostGemmLimit). On a GPU the step's library
// calls are repeated (DeviceGemmLimit), without attention, which is a fused kernel there.
// The same products can be run in several ways; the limit is the time of the fastest.
// Threads: one. Blocking.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda_host/launch_device.h"
#include "runtime/stream.h"

namespace hadal {

struct GemmLimit {
  std::vector<std::string> ways;          // descriptions; at least one
  double flops = 0;                       // floating-point operations of all products
  std::function<double(size_t way)> run;  // returns the seconds of all products. REQUIRES: way < ways.size()
};

// The GEMM limit on a GPU: repeats the recorded product launches of a training step, and nothing else.
//
// The products are the step's by construction: same shapes, types, strides, addresses, epilogues, order, library and
// plans, including recomputed ones. What the library fuses into a product (bias, ReLU, its mask, a gradient's column
// sums) is part of the limit; what the step launches separately is not. Attention is a kernel of its own here and is
// not part of it.
// Ways: one launch per product; and one graph, which has no gaps between launches. The graph is missing if the device
// lacks the memory for it (GraphCache::kKeepFreeBytes must stay free, as for training's graphs).
// The products read what the step left in its buffers (real numbers, not zeros) and write activations, masks, scratch
// and gradients, all of which the next step overwrites before reading. So no step changes by a bit.
// `products`: recorded in a step (cuda::LaunchDevice::NoteProducts), at least one. Their memory and `device` must
// outlive the result.
GemmLimit DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products);

// The GEMM limit on a CPU: the time of a step's products, attention's among them, if each thread did nothing but fused
// multiply-adds in registers (cpu::MultiplyInRegisters). No kernel is faster. There is one way, timed for milliseconds.
// Threads: the stream's. Blocking. `flops`: of this rank's products.
GemmLimit HostGemmLimit(double flops, const Stream& stream);

}  // namespace hadal
