// An emulated device for tests: the CUDA kernels run as C++ on the emulator, products are plain loops, and device
// memory is separate from host memory.
//
// Outside of launches and copies its memory cannot be accessed (mprotect): host code that uses a device pointer faults,
// and a kernel that uses a host pointer makes the emulator abort. Copies check which side their pointers are on. Memory
// that is being copied asynchronously (EnqueueCopyIn) must not change until the host has seen the copy done, and what
// EnqueueCopyOut copies is not there before.
// A capture keeps launches and a branch's events as closures; calls that are not allowed in one abort. So a run that
// ends has obeyed runtime/device.h. Each call that may be a standstill of a driver is one here: the host waits until
// all queues are idle, and aborts if they are not within half a minute: the remaining work must wait for the host.
// Kernels of the main order run at once; those of queues run when their end is requested, or some time later, and so do
// copies to the host on queues.
// Threads: as Device.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/cuda_host/launch_device.h"
#include "tests/support/emulated_queues.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {

class EmulatedDevice : public cuda::LaunchDevice {
 public:
  // `seed`: determines the order in which threads run. `most_bytes`: size of its memory.
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
  void EnqueueCopyOut(DeviceQueues::Queue queue, void* to_host, const void* from, int64_t bytes) override;
  void CopyWithin(void* to, const void* from, int64_t bytes) override;
  void Clear(void* memory, int64_t bytes) override;
  void Synchronize() override;
  DeviceQueues& queues() override { return queues_; }
  bool Idle() override;
  void BeginCapture() override;
  bool capturing() const override { return capturer_.load() != std::thread::id(); }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  void Launch(DeviceGraph& graph) override;
  int64_t launches() const override { return emulator_.launches(); }
  // How often the host has waited for all that it had enqueued on the main order.
  int64_t drains() const { return drains_; }

  // Makes EndCapture fail for lack of memory from now on.
  void RefuseGraphs() { refuses_graphs_ = true; }
  // Disables fused epilogues of products from now on; or masks and sums only, as cuBLASLt may for a Hopper GPU.
  void RefuseEpilogues() { refuses_epilogues_ = true; }
  void RefuseMasksAndSums() { refuses_masks_and_sums_ = true; }

  cuda::StreamHandle HandleOf(DeviceQueues::Queue queue) override;
  absl::StatusOr<DeviceQueues::Queue> MakeKernelQueue() override { return kernel_queue_ = *queues_.MakeQueue(); }
  cuda::Matmul& matmul() override;
  cuda::LaunchMemory& launch_memory() override { return *launch_memory_; }

  // For transfers between devices (emulated_nccl.h). Any thread may call them.
  EmulatedQueues& emulated_queues() { return queues_; }
  bool Owns(const void* memory, int64_t bytes) const;
  void Poison(void* memory, int64_t bytes);
  uint32_t Checksum(const void* memory, int64_t bytes);
  static void CopyAcross(EmulatedDevice& to_device, void* to, EmulatedDevice& from_device, const void* from,
                         int64_t bytes);

 private:
  class Loops;
  class Graph;
  class QueuedWork;
  struct OpenMemory;
  void Standstill() const override;
  bool OwnsHost(const void* memory, int64_t bytes) const;
  // Runs or records a launch; on a queue beside the main order later, when its end is requested.
  void Enqueue(std::function<void()> work);
  void EnqueueBeside(DeviceQueues::Queue queue, std::function<void()> work);
  // Returns false outside of a capture, and for a thread that is not the capturing one.
  bool Records(std::function<void()> work);
  // Kernels, copies and graphs enqueued on the main order so far; and beside it, which does no harm.
  int64_t Position() { return emulator_.launches() + main_copies_; }
  // The host has seen all done that was enqueued up to a position, or waited for it.
  void SeenDone(int64_t position);
  void WaitedUntil(int64_t position);
  // Makes the memory accessible, or inaccessible again; calls nest.
  void Open();
  void Close();

  EmulatedQueues queues_{[this] { Standstill(); },
                         {.enqueued = [this] { return Position(); },
                          .seen_done = [this](int64_t position) { SeenDone(position); },
                          .waited_until = [this](int64_t position) { WaitedUntil(position); },
                          .records = [this](std::function<void()> work) { return Records(std::move(work)); }}};
  cuda::KernelEmulator emulator_;
  std::mt19937_64 random_;
  std::map<DeviceQueues::Queue, std::unique_ptr<cuda::KernelEmulator>> beside_;  // the queues' emulators
  int64_t most_bytes_, used_bytes_ = 0;
  mutable std::mutex mutex_;  // for EnqueueCopyOut and transfers, which other threads call
  int opened_ = 0;
  std::map<std::byte*, int64_t> allocations_, host_allocations_;
  GuardedMemory guarded_;  // of `allocations_`
  // A copy between device and host whose end the host has not seen.
  struct Enqueued {
    int64_t position = 0;
    const void* from = nullptr;
    int64_t bytes = 0;
    uint32_t checksum = 0;    // to the device: of `from`
    void* to_host = nullptr;  // to the host, with its contents
    std::vector<std::byte> contents = {};
  };
  std::deque<Enqueued> enqueued_;
  int64_t main_copies_ = 0;  // between host and device
  int64_t drains_ = 0, drained_ = 0;
  std::atomic<std::thread::id> capturer_;  // none: no capture
  std::atomic<int> copies_ = 0;            // to the host on queues
  std::vector<std::function<void()>> recording_;
  int64_t launches_before_capture_ = 0;
  DeviceQueues::Queue kernel_queue_ = nullptr;  // the last of MakeKernelQueue
  bool refuses_graphs_ = false, refuses_epilogues_ = false, refuses_masks_and_sums_ = false;
  std::unique_ptr<cuda::Matmul> matmul_;
  std::byte* workspace_ = nullptr;  // because a GPU's products have one
  std::optional<cuda::LaunchMemory> launch_memory_;
};

}  // namespace hadal::testing
