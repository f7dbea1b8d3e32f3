#include "kernels/cuda_host/launch_memory.h"

#include <cstring>
#include <utility>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

constexpr int64_t kAlignment = 16;

}  // namespace

absl::StatusOr<LaunchMemory> LaunchMemory::Create(Device& device) {
  LaunchMemory memory(device);
  HADAL_ASSIGN_OR_RETURN(memory.on_device_, device.Allocate(2 * kHalfBytes));
  HADAL_ASSIGN_OR_RETURN(memory.on_host_, device.AllocateHost(2 * kHalfBytes));
  HADAL_ASSIGN_OR_RETURN(memory.scratch_, device.Allocate(kScratchBytes));
  return memory;
}

LaunchMemory::LaunchMemory(LaunchMemory&& other) noexcept
    : device_(other.device_),
      on_device_(std::exchange(other.on_device_, nullptr)),
      on_host_(std::exchange(other.on_host_, nullptr)),
      scratch_(std::exchange(other.scratch_, nullptr)),
      half_(other.half_),
      used_(other.used_),
      entries_(std::move(other.entries_)) {}

LaunchMemory::~LaunchMemory() {
  if (on_device_ != nullptr) device_->Free(on_device_);
  if (on_host_ != nullptr) device_->FreeHost(on_host_);
  if (scratch_ != nullptr) device_->Free(scratch_);
}

const std::byte* LaunchMemory::PutBytes(const void* values, int64_t bytes) {
  if (bytes == 0) return nullptr;
  HADAL_CHECK(!device_->capturing());  // the next launch of the graph would find other contents here
  HADAL_CHECK_LE(bytes, kHalfBytes);
  const uint32_t checksum = Crc32c(values, static_cast<size_t>(bytes));
  const auto [first, last] = entries_.equal_range(checksum);
  for (auto entry = first; entry != last; ++entry) {
    const auto& [offset, size] = entry->second;
    if (size == bytes && std::memcmp(on_host_ + offset, values, bytes) == 0) return on_device_ + offset;
  }
  if (used_ + bytes > kHalfBytes) {
    device_->Synchronize();  // no launch reads the other half any more, and no copy to it is in progress
    half_ = 1 - half_;
    used_ = 0;
    entries_.clear();
  }
  const int64_t offset = half_ * kHalfBytes + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::memcpy(on_host_ + offset, values, bytes);
  device_->EnqueueCopyIn(on_device_ + offset, on_host_ + offset, bytes);
  entries_.emplace(checksum, Entry{offset, bytes});
  return on_device_ + offset;
}

}  // namespace hadal::cuda
