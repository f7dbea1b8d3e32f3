#include "kernels/cuda_host/cuda_queues.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal::cuda {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  CheckFailed(__FILE__, __LINE__, absl::StrCat("the GPU failed (", what, "): ", cudaGetErrorString(error)));
}

absl::Status Exhausted(cudaError_t error) {
  cudaGetLastError();  // clears the error for the next launch
  return absl::ResourceExhaustedError(cudaGetErrorString(error));
}

class CudaQueues final : public DeviceQueues {
 public:
  CudaQueues(cudaStream_t main, std::function<void()> standstill) : main_(main), standstill_(std::move(standstill)) {}

  absl::StatusOr<Queue> MakeQueue() override {
    standstill_();
    int lowest = 0, highest = 0;
    Check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "its priorities");
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest);
    if (error != cudaSuccess) return Exhausted(error);
    return stream;
  }

  absl::StatusOr<Event> MakeEvent() override {
    standstill_();
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess) return Exhausted(error);
    return event;
  }

  void DestroyQueue(Queue queue) override {
    Check(cudaStreamDestroy(static_cast<cudaStream_t>(queue)), "destroying a queue");
  }
  void DestroyEvent(Event event) override {
    Check(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "destroying an event");
  }

  void Record(Event event, Queue queue) override {
    cudaStream_t const stream = queue == kMain ? main_ : static_cast<cudaStream_t>(queue);
    Check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream), "recording an event");
  }
  void Await(Queue queue, Event event) override {
    Check(cudaStreamWaitEvent(static_cast<cudaStream_t>(queue), static_cast<cudaEvent_t>(event), 0),
          "awaiting an event");
  }
  bool Reached(Event event) override {
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // clears the error for the next launch
      return false;
    }
    Check(error, "a transfer");
    return true;
  }

 private:
  cudaStream_t const main_;
  const std::function<void()> standstill_;
};

}  // namespace

std::unique_ptr<DeviceQueues> MakeCudaQueues(StreamHandle main, std::function<void()> standstill) {
  return std::make_unique<CudaQueues>(main, std::move(standstill));
}

}  // namespace hadal::cuda
