// The memory of emulated devices: allocations in one range of addresses, which the host can access only while it is
// open. One call of the kernel opens or closes all of them; addresses are used again once all allocations are gone.
// Thread safety: none.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "runtime/check.h"

namespace hadal::testing {

class GuardedMemory {
 public:
  GuardedMemory() { Map(0); }
  ~GuardedMemory() { munmap(range_, kRange); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Zeros, on a page's boundary.
  std::byte* Allocate(int64_t bytes) {
    std::byte* const memory = start_ + used_;
    used_ += RoundedUp(bytes, kPage);
    HADAL_CHECK_LE(used_ + 2 * kLargePage, kRange);
    ++allocations_;
    if (open_) Protect(PROT_READ | PROT_WRITE);
    return memory;
  }
  // Gives large pages back that lie within the allocation. A part of one would be split into small ones.
  void Free(std::byte* memory, int64_t bytes) {
    const int64_t first = RoundedUp(memory - start_, kLargePage);
    const int64_t last = (memory - start_ + RoundedUp(bytes, kPage)) / kLargePage * kLargePage;
    if (first < last) HADAL_CHECK_EQ(madvise(start_ + first, last - first, MADV_DONTNEED), 0);
    if (--allocations_ == 0 && !open_) used_ = 0, Map(MAP_FIXED);
  }
  void Open() { open_ = true, Protect(PROT_READ | PROT_WRITE); }
  void Close() { open_ = false, Protect(PROT_NONE); }

 private:
  static constexpr int64_t kRange = int64_t{1} << 38, kPage = 4096, kLargePage = 2 << 20;

  static int64_t RoundedUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }
  void Map(int fixed) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
    void* const range = mmap(range_, kRange, PROT_NONE, flags, -1, 0);
    HADAL_CHECK(range != MAP_FAILED);
    range_ = static_cast<std::byte*>(range);
    start_ = range_ + (kLargePage - reinterpret_cast<uintptr_t>(range) % kLargePage);
    madvise(range_, kRange, MADV_HUGEPAGE);  // a few large pages are opened faster than many small ones
  }
  void Protect(int protection) {
    const int64_t bytes = RoundedUp(used_, kLargePage);
    HADAL_CHECK_EQ(mprotect(start_, bytes, protection), 0);
  }

  std::byte *range_ = nullptr, *start_ = nullptr;
  int64_t used_ = 0, allocations_ = 0;
  bool open_ = false;
};

}  // namespace hadal::testing
