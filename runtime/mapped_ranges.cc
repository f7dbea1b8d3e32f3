#include "runtime/mapped_ranges.h"

#include <atomic>
#include <cstdint>

namespace hadal {
namespace {

constexpr uintptr_t kFree = 0, kBeingWritten = 1;  // no mapping has these addresses

struct Range {
  std::atomic<uintptr_t> begin = kFree;  // written last
  std::atomic<uintptr_t> end = 0;
  char path[256] = {};
};

// Global, because a signal handler can access nothing else.
Range ranges[kMostMappedRanges];
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

uintptr_t AddressOf(const void* place) { return reinterpret_cast<uintptr_t>(place); }

}  // namespace

void RememberMappedRange(std::span<const std::byte> bytes, std::string_view path) {
  for (Range& range : ranges) {
    uintptr_t expected = kFree;
    if (!range.begin.compare_exchange_strong(expected, kBeingWritten)) continue;
    range.end = AddressOf(bytes.data() + bytes.size());
    if (path.size() >= sizeof(range.path)) path.remove_prefix(path.size() - sizeof(range.path) + 1);
    range.path[path.copy(range.path, path.size())] = '\0';
    range.begin = AddressOf(bytes.data());
    return;
  }
}

void ForgetMappedRange(std::span<const std::byte> bytes) {
  for (Range& range : ranges) {
    uintptr_t begin = AddressOf(bytes.data());
    if (range.begin.compare_exchange_strong(begin, kFree)) return;
  }
}

const char* MappedPathAt(const void* address) {
  const uintptr_t place = AddressOf(address);
  for (const Range& range : ranges) {
    const uintptr_t begin = range.begin;
    if (begin > kBeingWritten && begin <= place && place < range.end) return range.path;
  }
  return nullptr;
}

}  // namespace hadal
