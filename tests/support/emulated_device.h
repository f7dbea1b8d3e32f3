// A device without a device, for tests: the CUDA kernels run as C++ on the executor, products are plain loops, and its
// memory is apart.
//
// Outside of launches and copies its memory cannot be touched (mprotect): host code that follows a device's pointer
// ends in a fault, and a kernel that follows a host's pointer ends in the executor's abort. Copies check which side
// they are given, and memory that is being copied without waiting (EnqueueCopyIn) must not change until the device is
// waited for. A capture keeps launches as closures; what may not be called meanwhile aborts. So a run that ends has
// kept to runtime/device.h. Each standstill that a driver may make is one here: the host waits until all queues are
// idle, and aborts where they are not within half a minute: what is there waits for a host that waits here.
// Kernels of the main order run at once, those of queues as late as somebody asks for their end, or some time later.
// Threads: as Device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/executor.h"
#include "kernels/cuda_host/capture_guard.h"
#include "kernels/cuda_host/launch_device.h"
#include "tests/support/emulated_queues.h"

namespace hadal::testing {

class EmulatedDevice : public cuda::LaunchDevice {
 public:
  // `seed`: of the order in which threads run. `most_bytes`: of its memory.
  explicit EmulatedDevice(uint64_t seed = 1, int64_t most_bytes = int64_t{1} << 34);
  ~EmulatedDevice() override;

  std::string Name() const override { return "emulated device"; }
  std::string Identity() const override { return absl::StrCat("emulated ", reinterpret_cast<uintptr_t>(this)); }
  int64_t FreeBytes() const override;
  int64_t used_bytes() const { return used_bytes_; }
  int64_t used_host_bytes() const;
  const DeviceKernels& kernels() const override;
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  void Free(std::byte* memory) override;
  absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) override;
  void FreeHost(std::byte* memory) override;
  void CopyIn(void* to, const void* from_host, int64_t bytes) override;
  void EnqueueCopyIn(void* to, const void* from_host, int64_t bytes) override;
  void CopyOut(void* to_host, const void* from, int64_t bytes) override;
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  void Clear(void* memory, int64_t bytes) override;
  void Synchronize() override;
  DeviceQueues& queues() override { return queues_; }
  bool Idle() override;
  void BeginCapture() override;
  bool capturing() const override { return capture_.active(); }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  void Launch(DeviceGraph& graph) override;
  int64_t launches() const override { return executor_.launches(); }

  // From here on EndCapture finds no memory.
  void RefuseGraphs() { refuses_graphs_ = true; }
  // From here on nothing rides on products.
  void RefuseEpilogues() { refuses_epilogues_ = true; }

  cuda::StreamHandle HandleOf(DeviceQueues::Queue queue) override;
  cuda::Matmul& matmul() override;
  cuda::LaunchMemory& launch_memory() override { return *launch_memory_; }

  // What transfers between devices do (emulated_nccl.h). Any thread may call them.
  EmulatedQueues& emulated_queues() { return queues_; }
  bool Owns(const void* memory, int64_t bytes) const;
  void Poison(void* memory, int64_t bytes);
  uint32_t Checksum(const void* memory, int64_t bytes);
  static void CopyAcross(EmulatedDevice& to_device, void* to, EmulatedDevice& from_device, const void* from,
                         int64_t bytes);

 private:
  class Loops;
  class Graph;
  class QueuedKernel;
  struct OpenMemory;
  void Standstill() const override;
  // Runs what is launched, or records it.
  void Enqueue(std::function<void()> work);
  // Opens the memory, or closes it again; calls nest.
  void Open();
  void Close();
  void Protect(int protection);

  EmulatedQueues queues_{[this] { Standstill(); }};
  cuda::Executor executor_;
  std::mt19937_64 random_;
  std::map<DeviceQueues::Queue, std::unique_ptr<cuda::Executor>> beside_;  // the queues' executors
  int64_t most_bytes_, used_bytes_ = 0;
  mutable std::mutex mutex_;  // of what CopyOut and transfers, on other threads, also use
  int opened_ = 0;
  std::map<std::byte*, int64_t> allocations_, host_allocations_;
  struct Enqueued {
    const void* from = nullptr;
    int64_t bytes = 0;
    uint32_t checksum = 0;
  };
  std::vector<Enqueued> enqueued_;
  cuda::CaptureGuard capture_;
  std::vector<std::function<void()>> recording_;
  int64_t launches_before_capture_ = 0;
  bool refuses_graphs_ = false, refuses_epilogues_ = false;
  std::unique_ptr<cuda::Matmul> matmul_;
  std::byte* workspace_ = nullptr;  // a GPU's products have one
  std::optional<cuda::LaunchMemory> launch_memory_;
};

}  // namespace hadal::testing
