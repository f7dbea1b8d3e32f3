#include "runtime/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hadal {

ArenaSlice ArenaLayout::ReserveBytes(const std::string& category, int64_t bytes) {
  HADAL_CHECK_GE(bytes, 0);
  const int64_t padded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  auto found =
      std::find_if(categories_.begin(), categories_.end(), [&](const Category& c) { return c.name == category; });
  if (found == categories_.end()) found = categories_.insert(categories_.end(), Category{category, 0});
  found->bytes += padded;
  const ArenaSlice slice{total_bytes_, bytes};
  total_bytes_ += padded;
  return slice;
}

absl::StatusOr<Arena> Arena::Allocate(const ArenaLayout& layout) {
  const int64_t bytes = std::max<int64_t>(layout.total_bytes(), ArenaLayout::kAlignmentBytes);
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot allocate the arena of ", bytes, " bytes: ", std::strerror(errno),
        ". Try more pipeline stages, activation_checkpointing, or smaller micro-batches (see `hadal plan`)."));
  }
  return Arena(static_cast<std::byte*>(base), bytes);
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}

}  // namespace hadal
