// The GEMM limit on a GPU: repeats the recorded product launches of a training step, and nothing else.
//
// The products are the step's by construction: same shapes, types, strides, addresses, epilogues, order, library and
// plans, including recomputed ones. What the library fuses into a product (bias, ReLU, its mask, a gradient's column
// sums) is part of the limit; what the step launches separately is not. Attention is a kernel of its own here and is
// not part of it.
// Ways: one launch per product; and one graph, which has no gaps between launches. The second is missing if the device
// lacks the memory for the graph (as much is left free as for training's graphs).
// The products read what the step left in its buffers (real numbers, not zeros) and write activations, masks, scratch
// and gradients, all of which the next step overwrites before reading. So no step changes by a bit.
// Threads: one. Blocking.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda_host/launch_device.h"
#include "tools/bench/gemm_limit.h"

namespace hadal {

class DeviceGemmLimit : public GemmLimit {
 public:
  // `products`: recorded in a step (cuda::LaunchDevice::NoteProducts), at least one. Their memory and `device` must
  // outlive the object.
  DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products);

  const std::vector<std::string>& ways() const override { return ways_; }
  GemmLimitTimes Run(size_t way) override;
  double flops() const override { return flops_; }

 private:
  void LaunchAll();
  void Record();

  cuda::LaunchDevice& device_;
  const std::vector<cuda::MatmulArgs> products_;
  double flops_ = 0;
  std::vector<std::string> ways_ = {"one launch a product"};
  std::unique_ptr<DeviceGraph> graph_;  // null: no memory for it
};

}  // namespace hadal
