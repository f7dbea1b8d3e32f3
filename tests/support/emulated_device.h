// A device without a device, for tests: the CUDA kernels run as C++ on the executor, products are plain loops, and its memory is apart.
//
// Outside of launches and copies its memory cannot be touched (mprotect): host code that follows a device's pointer ends in a fault, and a
// kernel that follows a host's pointer ends in the executor's abort. Copies check which side they are given, and memory that is being copied
// without waiting (EnqueueCopyIn) must not change until the device is waited for. So a run that ends has kept to runtime/device.h.
// Threads: as Device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/executor.h"
#include "kernels/device/launch_device.h"

namespace hadal::testing {

class EmulatedDevice : public cuda::LaunchDevice {
 public:
  // `seed`: of the order in which threads run. `most_bytes`: of its memory.
  explicit EmulatedDevice(uint64_t seed = 1, int64_t most_bytes = int64_t{1} << 30);
  ~EmulatedDevice() override;

  std::string Name() const override { return "emulated device"; }
  int64_t FreeBytes() const override { return most_bytes_ - used_bytes_; }
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

  cuda::StreamHandle handle() override { return executor_.stream(); }
  cuda::Matmul& matmul() override;
  cuda::LaunchMemory& launch_memory() override { return *launch_memory_; }

 private:
  class Loops;
  struct OpenMemory;
  // Opens the memory, or closes it again; calls nest.
  void Open();
  void Close();
  void Protect(int protection);
  bool Owns(const void* memory, int64_t bytes) const;

  cuda::Executor executor_;
  int64_t most_bytes_, used_bytes_ = 0;
  mutable std::mutex mutex_;  // of what CopyOut, on another thread, also uses
  int opened_ = 0;
  std::map<std::byte*, int64_t> allocations_, host_allocations_;
  struct Enqueued {
    const void* from = nullptr;
    int64_t bytes = 0;
    uint32_t checksum = 0;
  };
  std::vector<Enqueued> enqueued_;
  std::unique_ptr<cuda::Matmul> matmul_;
  std::byte* workspace_ = nullptr;  // a GPU's products have one
  std::optional<cuda::LaunchMemory> launch_memory_;
};

}  // namespace hadal::testing
