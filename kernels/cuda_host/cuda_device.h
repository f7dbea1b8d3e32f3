// A GPU as a Device. In a build without CUDA these functions return an error that says so (no_cuda_device.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_view.h"
#include "runtime/device.h"
#include "runtime/device_queues.h"
#include "runtime/device_watch.h"

namespace hadal::cuda {

struct CudaDeviceOptions {
  int local_rank = 0;             // the process's index on its host; ChooseVisibleDevice maps it to a GPU
  bool tf32 = false;              // products of fp32 matrices in tf32: ten bits of mantissa
  int weight_gradient_batch = 1;  // weight gradients per launch for which the algorithm is chosen (cublas_matmul.h)
  DeviceWatch::Options watch;     // ends the process if the GPU hangs; all of the device's waits and calls are watched
};

// Opens the GPU. Errors: NotFound if there is no driver or no GPU, or if the build has no CUDA. Unavailable, with a
// remedy, for a GPU that cannot be used: a driver older than this CUDA, compute capability below 8.0, no cuBLASLt.
// ResourceExhausted if CUDA cannot allocate the memory of own_memory.h. Blocking: a second or two.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

// Facts about one GPU, its driver and its libraries. 0 or empty: unknown.
struct CudaFacts {
  std::string model;         // "NVIDIA H200"
  std::string architecture;  // "sm_90"
  std::string bus;           // address on the host's PCI bus, "0000:19:00.0"; MIG instances of one GPU share it
  std::string identity;      // "GPU-1b4c…", unique in the cluster: Device::Identity (runtime/device.h)
  int64_t memory_bytes = 0;  // total device memory
  int64_t free_bytes = 0;    // free device memory
  int driver = 0;            // the newest CUDA that the driver supports: 13020 is 13.2
  int runtime = 0;           // the CUDA that the program was built with
  int cublas = 0;            // cuBLASLt: 130002 is 13.0.2; 0: it cannot be opened
};

// Returns facts about the GPU that OpenCudaDevice would choose, even if OpenCudaDevice would then refuse that GPU.
// Errors: NotFound, as OpenCudaDevice; Unavailable if the driver is too old or the GPU cannot be queried. Blocking.
absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& options);

// Returns the index of the GPU that a process takes among the `visible` ones: those that its launcher grants it,
// numbered from 0: the driver applies CUDA_VISIBLE_DEVICES and renumbers in its order, and a batch system's control
// groups hide GPUs, too. One rule covers three ways to assign GPUs:
//
//   mpirun, srun --gres=gpu:8           every rank of a host sees all 8 in one order     rank i takes i
//   srun --gpus-per-task=1, wrappers    every rank sees one GPU of its own               rank i takes 0
//   srun --gpus-per-task=2              every rank sees two GPUs of its own              rank i takes one of its two
// Limitation: lists that overlap without being equal ("0,1" for one rank, "1,2" for the next) are not recognised; no
// launcher makes such lists. `local_rank`: the process's index on its host. REQUIRES: local_rank ≥ 0, visible > 0.
constexpr int ChooseVisibleDevice(int local_rank, int visible) { return local_rank % visible; }

// Returns a GPU's streams and events as DeviceQueues (cuda_queues.cc; the device calls it). They are non-blocking
// streams of the highest priority: a transfer, for which a peer waits, has few thread blocks and should run before
// the many of a kernel. `device`: CUDA's number of the GPU. Calls also set it as the calling thread's current device,
// because CUDA would open GPU 0 for a new thread. `main`: the device's main stream. `standstill`: called before each
// call that may make the host wait for the device (runtime/device.h). `main` and `watch` must outlive the queues.
std::unique_ptr<DeviceQueues> MakeCudaQueues(int device, StreamHandle main, DeviceWatch& watch,
                                             std::function<void()> standstill);

}  // namespace hadal::cuda
