// The GEMM limit on a GPU: the products of a training step, noted as it launched them, launched once more and nothing
// beside them.
//
// So they are the step's by construction: the same shapes, types, strides, places, epilogues and order, by the same
// library with the same plans; with recomputation the recomputed ones too. What rides on a product (bias,
// ReLU, its mask, sums of a gradient) is in the limit; what the library does not offer there, and the step launches
// beside it, is not. Attention, which is a kernel and no product, is not in them.
// Ways: kernel by kernel, as the host launches them; and as one graph, so that no gap between launches pads the limit.
// Where the device has no memory for the graph (it leaves free what training's graphs do) there is the first way only.
// The products read what the step left in its buffers (real numbers, not zeros) and write activations, masks, scratch
// and gradients, which the next step writes anew before it reads them: no step changes by a bit.
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
  // `products`: of a step (cuda::LaunchDevice::NoteProducts), at least one, whose memory and `device` outlive the
  // object.
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
