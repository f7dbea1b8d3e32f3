// Memory for launches: small host arrays that kernels read on the device, and scratch.
//
// Kernels read values that change between steps from device memory. In training they are in a micro-batch's block
// (kernels/device_batch.h). Values that are not in that block (Adam's scalars; kernels that tools and tests run alone)
// use this memory.
// Put copies values to the device and returns their address; values copied recently are not copied again. The memory
// has two halves. When the current half is full, Put waits for the stream and continues with the other half, emptied.
// An address is therefore valid for every launch that precedes the second change of halves.
// Scratch passes data between the launches of one operation; the next operation may overwrite it. Graphs may use
// scratch, because its address is fixed and all operations run on one queue. They must not use Put, which aborts during
// a capture.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_view.h"
#include "runtime/device.h"

namespace hadal::cuda {

class LaunchMemory {
 public:
  static constexpr int64_t kHalfBytes = 4 << 20;
  static constexpr int64_t kScratchBytes = 1 << 20;

  // `device` must outlive the object. Errors: ResourceExhausted.
  static absl::StatusOr<LaunchMemory> Create(Device& device);
  LaunchMemory(LaunchMemory&& other) noexcept;
  ~LaunchMemory();

  // Copies `count` values to the device and returns their address there; null if `count` is 0. REQUIRES: at most
  // kHalfBytes in one operation.
  template <typename T>
  DevicePointer<const T> Put(const T* values, int64_t count) {
    return {reinterpret_cast<const T*>(PutBytes(values, count * static_cast<int64_t>(sizeof(T))))};
  }
  template <typename T>
  DevicePointer<const T> Put(const T& value) {
    return Put(&value, 1);
  }
  std::byte* scratch() const { return scratch_; }

 private:
  explicit LaunchMemory(Device& device) : device_(&device) {}
  const std::byte* PutBytes(const void* values, int64_t bytes);

  struct Entry {
    int64_t offset = 0, bytes = 0;
  };
  Device* device_;
  std::byte *on_device_ = nullptr, *on_host_ = nullptr, *scratch_ = nullptr;
  int64_t half_ = 0, used_ = 0;
  std::unordered_multimap<uint32_t, Entry> entries_;  // of the current half, by checksum
};

}  // namespace hadal::cuda
