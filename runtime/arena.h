// One arena a rank: every buffer is known before the first step, laid out in an ArenaLayout, and then allocated once.
// `hadal plan` builds the same layout and only prints it, which is why its bytes equal the arena's.
// A region is for kernels, and then lies on the rank's device, or for the host (what is sent, received or written to files); where the
// device is the CPU there is no difference.
//
// Thread safety: a layout is built by one thread; a finished Arena is read-only and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// A place in one of the arena's two parts: bytes [offset, offset + bytes).
struct ArenaSlice {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool on_host = false;
};

// Adds up named regions. Each starts on a 64-byte boundary.
class ArenaLayout {
 public:
  static constexpr int64_t kAlignmentBytes = 64;

  // Reserves `count` elements of T under `category` ("weights", "activations", …); categories are summed for reports.
  template <typename T>
  ArenaSlice Reserve(const std::string& category, int64_t count) {
    return ReserveBytes(category, count * static_cast<int64_t>(sizeof(T)));
  }
  ArenaSlice ReserveBytes(const std::string& category, int64_t bytes) { return Add(category, bytes, device_bytes_); }
  // The same for memory that only the host touches.
  ArenaSlice ReserveHostBytes(const std::string& category, int64_t bytes);

  int64_t device_bytes() const { return device_bytes_; }
  int64_t host_bytes() const { return host_bytes_; }
  int64_t total_bytes() const { return device_bytes_ + host_bytes_; }
  struct Category {
    std::string name;
    int64_t bytes = 0;
  };
  // In order of first use.
  const std::vector<Category>& categories() const { return categories_; }

 private:
  ArenaSlice Add(const std::string& category, int64_t bytes, int64_t& part);

  int64_t device_bytes_ = 0, host_bytes_ = 0;
  std::vector<Category> categories_;
};

// The memory itself, zero-filled. On the CPU: one mapping, aligned to pages, whose pages take memory when they are first touched, or all at
// once in MakeResident.
class Arena {
 public:
  // `device`: null for the CPU; must outlive the arena. Errors: ResourceExhausted, with the bytes asked for and what to try.
  static absl::StatusOr<Arena> Allocate(const ArenaLayout& layout, Device* device = nullptr);

  // Gives every page its memory now, in huge pages where the system has them, the stream's threads side by side: what a run holds is then what was planned, from its first step, and
  // a host that cannot give it says so before training instead of hours into it. A device's memory is resident already.
  // Errors: ResourceExhausted (a control group's limit may end the process instead). Blocking: about a second for each 3 GB and thread.
  absl::Status MakeResident(const Stream& stream);

  Arena() = default;  // empty; holds nothing
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  template <typename T>
  T* Get(const ArenaSlice& slice) const {
    HADAL_CHECK_LE(slice.offset + slice.bytes, slice.on_host ? host_bytes_ : device_bytes_);
    return reinterpret_cast<T*>((slice.on_host ? host_base_ : base_) + slice.offset);
  }
  int64_t bytes() const { return device_bytes_ + host_bytes_; }
  // Where the kernels' part lies; null: in the process's own memory.
  Device* device() const { return device_; }

 private:
  static absl::StatusOr<Arena> AllocateOn(const ArenaLayout& layout, Device& device);

  Device* device_ = nullptr;
  std::byte *base_ = nullptr, *host_base_ = nullptr;  // on the CPU of one mapping
  int64_t device_bytes_ = 0, host_bytes_ = 0;
};

}  // namespace hadal
