// The GEMM limit of a training step: the time that the step's matrix products take without anything else. Its share of
// the step's time shows how close the step is to the best that its products allow.
//
// On a CPU it is computed from the speed of multiply-adds in registers (HostGemmLimit). On a GPU the step's library
// calls are repeated (DeviceGemmLimit), without attention, which is a fused kernel there.
// The same products can be run in several ways; the limit is the time of the fastest.
// Threads: one. Blocking.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda_host/launch_device.h"
#include "runtime/stream.h"

namespace hadal {

class GemmLimit {
 public:
  virtual ~GemmLimit() = default;

  // Descriptions of the ways; at least one.
  virtual const std::vector<std::string>& ways() const = 0;
  // Returns the seconds of all products. REQUIRES: way < ways().size().
  virtual double Run(size_t way) = 0;
  // Floating-point operations of one Run.  REQUIRES: Run was called.
  virtual double flops() const = 0;
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
// Threads: one. Blocking.
class DeviceGemmLimit : public GemmLimit {
 public:
  // `products`: recorded in a step (cuda::LaunchDevice::NoteProducts), at least one. Their memory and `device` must
  // outlive the object.
  DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products);

  const std::vector<std::string>& ways() const override { return ways_; }
  double Run(size_t way) override;
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

// The GEMM limit on a CPU: the time of a step's products, attention's among them, if each thread did nothing but fused
// multiply-adds in registers (cpu::MultiplyInRegisters). No kernel is faster. There is one way, timed for milliseconds.
// Threads: the stream's. Blocking.
class HostGemmLimit : public GemmLimit {
 public:
  // `flops`: of this rank's products.
  HostGemmLimit(double flops, const Stream& stream) : flops_(flops), stream_(stream) {}

  const std::vector<std::string>& ways() const override { return ways_; }
  double Run(size_t way) override;
  double flops() const override { return flops_; }

 private:
  const std::vector<std::string> ways_ = {"multiply-adds in registers"};
  double flops_;
  Stream stream_;
};

}  // namespace hadal
