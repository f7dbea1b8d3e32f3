// EmulatedCuda's memory, the device's and the host's pinned, and the copies between them.
#include <cstdlib>
#include <cstring>

#include "runtime/check.h"
#include "tests/support/emulated_cuda.h"

namespace hadal::testing {
namespace {

constexpr int kPoison = 0xFF;
constexpr int64_t kPage = 4096;
constexpr int64_t kBoundary = 256;  // what cudaMalloc promises

}  // namespace

bool EmulatedCuda::Inside(const std::map<std::byte*, int64_t>& allocations, const void* memory, int64_t bytes) const {
  auto* const start = static_cast<std::byte*>(const_cast<void*>(memory));
  auto next = allocations.upper_bound(start);
  if (next == allocations.begin()) return false;
  const auto& [base, size] = *std::prev(next);
  return start + bytes <= base + size;
}

bool EmulatedCuda::Owns(const void* memory, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  return Inside(device_, memory, bytes);
}

bool EmulatedCuda::InUse(const void* memory, int64_t bytes) const {
  const auto* const start = static_cast<const std::byte*>(memory);
  for (const auto& [handle, stream] : streams_) {
    for (const Work& work : stream->pending) {
      for (const auto& [named, size] : work.names) {
        const auto* const at = static_cast<const std::byte*>(named);
        if (at < start + bytes && start < at + size) return true;
      }
    }
  }
  return false;
}

cudaError_t EmulatedCuda::Allocate(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  const auto size = static_cast<int64_t>(bytes);
  if (size > machine.bytes - used_bytes_) return cudaErrorMemoryAllocation;
  std::byte* const start = guarded_.Allocate(size + kBoundary) + kBoundary;
  guarded_.Open();
  std::memset(start - kBoundary, kPoison, size + kBoundary);
  guarded_.Close();
  device_of_[start] = CurrentDevice();
  device_[start] = size;
  used_bytes_ += size;
  for (const auto& [handle, stream] : streams_) {
    if (stream->device == CurrentDevice()) stream->emulator.Register(start, size);
  }
  *memory = start;
  return cudaSuccess;
}

cudaError_t EmulatedCuda::Free(void* memory) {
  const std::lock_guard lock(mutex_);
  if (ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  const auto found = device_.find(static_cast<std::byte*>(memory));
  if (found == device_.end()) return cudaErrorInvalidValue;
  const auto [start, bytes] = *found;
  for (const auto& [handle, stream] : streams_) Drain(*stream);  // as cudaFree does
  for (const auto& [handle, stream] : streams_) {
    if (stream->device == device_of_.at(start)) stream->emulator.Unregister(memory);
  }
  guarded_.Free(start - kBoundary, bytes + kBoundary);
  used_bytes_ -= bytes;
  device_.erase(start);
  device_of_.erase(start);
  return fault_;
}

cudaError_t EmulatedCuda::AllocateHost(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (ThisThreadRecords()) return cudaErrorStreamCaptureUnsupported;
  *memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  HADAL_CHECK(*memory != nullptr);
  std::memset(*memory, kPoison, bytes);
  host_[static_cast<std::byte*>(*memory)] = static_cast<int64_t>(bytes);
  return cudaSuccess;
}

cudaError_t EmulatedCuda::FreeHost(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = host_.find(static_cast<std::byte*>(memory));
  if (found == host_.end()) return cudaErrorInvalidValue;
  HADAL_CHECK(!InUse(memory, found->second));
  std::free(memory);
  host_.erase(found);
  return fault_;
}

cudaError_t EmulatedCuda::Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  StreamState& state = StateOf(stream);
  const auto size = static_cast<int64_t>(bytes);
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  if (Inside(device_, to, size) != to_device || Inside(device_, from, size) != from_device)
    return cudaErrorInvalidValue;
  const bool pinned_to = Inside(host_, to, size), pinned_from = Inside(host_, from, size);
  if (state.recording != nullptr && ((!to_device && !pinned_to) || (!from_device && !pinned_from))) {
    return cudaErrorStreamCaptureUnsupported;
  }
  Work work{.run = [=] { std::memcpy(to, from, size); }, .names = {{to, size}, {from, size}}};
  if (!from_device && !pinned_from) {
    const auto* const start = static_cast<const std::byte*>(from);
    work.run = [to, staged = std::vector<std::byte>(start, start + size)] {
      std::memcpy(to, staged.data(), staged.size());
    };
    work.names.pop_back();
  }
  Put(state, std::move(work));
  if (!to_device && !pinned_to) Drain(state);
  Advance();
  return fault_;
}

cudaError_t EmulatedCuda::Clear(void* memory, int value, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<int64_t>(bytes);
  if (!Inside(device_, memory, size)) return cudaErrorInvalidValue;
  Put(StateOf(stream), {.run = [=] { std::memset(memory, value, bytes); }, .names = {{memory, size}}});
  Advance();
  return fault_;
}

}  // namespace hadal::testing
