// A device as kernels are launched on it: a stream, products, and the memory that launches need. CudaDevice is a GPU (cuda_device.h); tests
// have one that is emulated. The operations of DeviceKernels (operations.h) know no more of a device than this.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/first_launches.h"
#include "kernels/device/launch_memory.h"
#include "kernels/device/matmul.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace hadal::cuda {

class LaunchDevice : public Device {
 public:
  StreamHandle handle() { return HandleOf(DeviceQueues::kMain); }
  // Of a queue beside the main order, or of that.  REQUIRES: for a queue, not within a capture.
  virtual StreamHandle HandleOf(DeviceQueues::Queue queue) = 0;
  virtual Matmul& matmul() = 0;
  virtual LaunchMemory& launch_memory() = 0;

  // All products go this way.
  void Multiply(const MatmulArgs& args) {
    if (products_ != nullptr) products_->push_back(args);
    matmul().Multiply(args);
  }
  // Products are also noted in `list` as they are launched one by one or captured (not as graphs are launched); null: no longer.
  void NoteProducts(std::vector<MatmulArgs>* list) { products_ = list; }

  void OnStandstill(std::function<void()> before) override { before_standstill_ = std::move(before); }

 protected:
  // The host is about to do what the driver may answer with a standstill.
  virtual void Standstill() const {
    if (before_standstill_ && !capturing()) before_standstill_();
  }
  FirstLaunches& first_launches() { return first_launches_; }

 private:
  std::function<void()> before_standstill_;
  FirstLaunches first_launches_{[this] { Standstill(); }};
  std::vector<MatmulArgs>* products_ = nullptr;
};

// REQUIRES: the stream's device is a LaunchDevice: all are that have the kernels of operations.h.
inline LaunchDevice& DeviceOf(const Stream& stream) {
  HADAL_CHECK(stream.queue() == DeviceQueues::kMain);  // scratch, launch memory and products serve one order
  return static_cast<LaunchDevice&>(*stream.device());
}
// For an operation that uses none of these: it may be launched beside the main order.
inline StreamHandle HandleOf(const Stream& stream) {
  return static_cast<LaunchDevice&>(*stream.device()).HandleOf(stream.queue());
}

}  // namespace hadal::cuda
