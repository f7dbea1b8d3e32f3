#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>
#include <utility>

#include "kernels/cuda_host/cuda_check.h"
#include "kernels/cuda_host/cuda_device.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

constexpr std::chrono::microseconds kPause{100};  // between two looks at an event

absl::Status Exhausted(cudaError_t error) {
  cudaGetLastError();  // clears the error for the next launch
  return ResourceExhaustedError(cudaGetErrorString(error));
}

class CudaQueues final : public DeviceQueues {
 public:
  CudaQueues(int device, cudaStream_t main, DeviceWatch& watch, std::function<void()> standstill)
      : device_(device), main_(main), watch_(watch), standstill_(std::move(standstill)) {}

  absl::StatusOr<Queue> MakeQueue() override {
    standstill_();
    const DeviceWatch::Wait wait(watch_, "making a queue");
    int lowest = 0, highest = 0;
    Check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "its priorities");
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest);
    if (error != cudaSuccess) return Exhausted(error);
    return stream;
  }

  absl::StatusOr<Event> MakeEvent() override { return Make(cudaEventDisableTiming); }
  absl::StatusOr<Event> MakeTimedEvent() override { return Make(cudaEventDefault); }

  void DestroyQueue(Queue queue) override {
    const DeviceWatch::Wait wait(watch_, "destroying a queue");
    Check(cudaStreamDestroy(static_cast<cudaStream_t>(queue)), "destroying a queue");
  }
  void DestroyEvent(Event event) override {
    const DeviceWatch::Wait wait(watch_, "destroying an event");
    Check(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "destroying an event");
  }

  void Record(Event event, Queue queue) override {
    Choose();
    Check(cudaEventRecord(static_cast<cudaEvent_t>(event), StreamOf(queue)), "recording an event");
  }
  void Await(Queue queue, Event event) override {
    Choose();
    Check(cudaStreamWaitEvent(StreamOf(queue), static_cast<cudaEvent_t>(event), 0), "awaiting an event");
  }
  // Polled until it is true: not BeforeCall, which would start the watch's time again.
  bool Reached(Event event) override {
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // clears the error for the next launch
      return false;
    }
    Check(error, "a transfer");
    return true;
  }
  void AwaitOnHost(Event event, const char* what, const std::function<void()>* meanwhile) override {
    const DeviceWatch::Wait wait(watch_, what);
    while (!Reached(event)) {
      if (meanwhile == nullptr) {
        std::this_thread::sleep_for(kPause);
      } else {
        (*meanwhile)();
        std::this_thread::yield();
      }
    }
  }
  double SecondsBetween(Event first, Event second) override {
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(first), static_cast<cudaEvent_t>(second)),
          "the time between two events");
    return 1e-3 * milliseconds;
  }

 private:
  cudaStream_t StreamOf(Queue queue) const { return queue == kMain ? main_ : static_cast<cudaStream_t>(queue); }
  void Choose() {
    watch_.BeforeCall();
    Check(cudaSetDevice(device_), "choosing it");
  }
  absl::StatusOr<Event> Make(unsigned int flags) {
    standstill_();
    const DeviceWatch::Wait wait(watch_, "making an event");
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
    if (error != cudaSuccess) return Exhausted(error);
    return event;
  }

  const int device_;
  cudaStream_t const main_;
  DeviceWatch& watch_;
  const std::function<void()> standstill_;
};

}  // namespace

std::unique_ptr<DeviceQueues> MakeCudaQueues(int device, StreamHandle main, DeviceWatch& watch,
                                             std::function<void()> standstill) {
  return std::make_unique<CudaQueues>(device, main, watch, std::move(standstill));
}

}  // namespace hadal::cuda
