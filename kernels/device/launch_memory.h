// Memory that launches need beside their arguments: small arrays of the host that kernels read on the device, and scratch.
//
// A kernel reads what changes from step to step from device memory. In training that is a micro-batch's block (kernels/device_batch.h); what
// has no place there (Adam's scalars; kernels that tools and tests run alone) comes here. Put() says where such values lie: content it has
// seen lately is there already. Two halves take turns: content is copied to the current one; when that is full the stream is waited for, and the other half starts
// empty. So an address serves every launch that is made before Put() has taken in another half.
// Scratch holds what one operation's own launches pass to each other; the next operation may overwrite it.
// What Put() gives is not for graphs: it aborts during a capture. Scratch is: its place stays, and one order serves all.
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

  // `count` values on the device.  REQUIRES: at most kHalfBytes of them in one operation. Null for none.
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
