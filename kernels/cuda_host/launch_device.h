// The parts of a device that launches need: a CUDA stream, matrix products, and memory for launches. The GPU of
// cuda_device.h is a LaunchDevice, and so are the emulated devices of tests. The operations of DeviceKernels
// (operations.h) use nothing else of a device.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/first_launches.h"
#include "kernels/cuda_host/launch_memory.h"
#include "kernels/cuda_host/matmul.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace hadal::cuda {

class LaunchDevice : public Device {
 public:
  StreamHandle handle() { return HandleOf(DeviceQueues::kMain); }
  // The CUDA stream of a queue. REQUIRES: in a capture: the main queue, or the last of MakeKernelQueue.
  virtual StreamHandle HandleOf(DeviceQueues::Queue queue) = 0;
  // As DeviceQueues::MakeQueue, but with the main queue's priority; MakeQueue gives a higher one.
  virtual absl::StatusOr<DeviceQueues::Queue> MakeKernelQueue() = 0;
  virtual Matmul& matmul() = 0;
  virtual LaunchMemory& launch_memory() = 0;

  // Launches a product. All products are launched here.
  void Multiply(const MatmulArgs& args) {
    if (products_ != nullptr) products_->push_back(args);
    matmul().Multiply(args);
  }
  // Appends every product that is launched or captured from now on to `list` (but not launches of a graph). Null:
  // stops.
  void NoteProducts(std::vector<MatmulArgs>* list) { products_ = list; }

  void OnStandstill(std::function<void()> before) override { before_standstill_ = std::move(before); }

 protected:
  // Must be called before a driver call that may be a standstill (runtime/device.h). Calls OnStandstill's function.
  virtual void Standstill() const {
    if (before_standstill_ && !capturing()) before_standstill_();
  }
  FirstLaunches& first_launches() { return first_launches_; }

 private:
  std::function<void()> before_standstill_;
  FirstLaunches first_launches_{[this] { Standstill(); }};
  std::vector<MatmulArgs>* products_ = nullptr;
};

// Returns the stream's device. REQUIRES: it is a LaunchDevice, as is every device with the kernels of operations.h.
// AnyDeviceOf: also for a stream that is not on the main queue; for operations that use neither scratch nor launch
// memory, and for products only with a workspace of their own.
inline LaunchDevice& AnyDeviceOf(const Stream& stream) { return static_cast<LaunchDevice&>(*stream.device()); }
inline LaunchDevice& DeviceOf(const Stream& stream) {
  HADAL_CHECK(stream.queue() == DeviceQueues::kMain);  // scratch, launch memory and the workspace serve one queue
  return AnyDeviceOf(stream);
}
// Returns the CUDA stream of the stream's queue, under the conditions of AnyDeviceOf.
inline StreamHandle HandleOf(const Stream& stream) { return AnyDeviceOf(stream).HandleOf(stream.queue()); }

}  // namespace hadal::cuda
