// Memory for launches: small host arrays that kernels read on the device, and scratch.
//
// Kernels read from device memory what changes from step to step. In training that is a micro-batch's block
// (kernels/device_batch.h). Values without a place in it (Adam's scalars; kernels that tools and tests run alone) come
// here.
// Put copies values to the device and returns their address; values that it has copied recently are not copied again.
// The memory has two halves: values go to the current half until it is full. Then Put waits for the stream and
// continues with the other half, empty. So an address serves every launch that precedes the second change of halves.
// Scratch passes data between the launches of one operation; the next operation may overwrite it. Graphs may use
// scratch, because its address is fixed and all operations run in one order. They may not use Put: it aborts during a
// capture.
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

  // `count` values on the device. REQUIRES: at most kHalfBytes of them in one operation. Null if `count` is 0.
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
  std::unordered_multimap<uint32_t, Entry> entries_;  // of the current half, by checksum of their values
};

}  // namespace hadal::cuda
