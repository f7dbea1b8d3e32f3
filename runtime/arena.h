// One arena a rank: every buffer is known before the first step, laid out in an ArenaLayout, and then allocated once.
// `hadal plan` builds the same layout and only prints it, which is why its bytes equal the arena's.
//
// Thread safety: a layout is built by one thread; a finished Arena is read-only and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tensor.h"

namespace hadal {

// A place in the arena: bytes [offset, offset + bytes).
struct ArenaSlice {
  int64_t offset = 0;
  int64_t bytes = 0;
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
  ArenaSlice ReserveBytes(const std::string& category, int64_t bytes);

  int64_t total_bytes() const { return total_bytes_; }
  struct Category {
    std::string name;
    int64_t bytes = 0;
  };
  // In order of first use.
  const std::vector<Category>& categories() const { return categories_; }

 private:
  int64_t total_bytes_ = 0;
  std::vector<Category> categories_;
};

// The memory itself: zero-filled, aligned to pages, lazily backed (a page costs nothing until it is touched).
class Arena {
 public:
  // Errors: ResourceExhausted, with the bytes asked for and what to try.
  static absl::StatusOr<Arena> Allocate(const ArenaLayout& layout);

  Arena() = default;  // empty; holds nothing
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  template <typename T>
  T* Get(const ArenaSlice& slice) const {
    HADAL_CHECK_LE(slice.offset + slice.bytes, bytes_);
    return reinterpret_cast<T*>(base_ + slice.offset);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Arena(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace hadal
