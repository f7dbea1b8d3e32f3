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
  GuardedMemory() {
    void* const range = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    HADAL_CHECK(range != MAP_FAILED);
    range_ = static_cast<std::byte*>(range);
    start_ = range_ + (kLargePage - reinterpret_cast<uintptr_t>(range) % kLargePage);
    madvise(range_, kRange, MADV_HUGEPAGE);  // a few large pages are opened faster than many small ones
  }
  ~GuardedMemory() { munmap(range_, kRange); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Zeros, on a page's boundary.
  std::byte* Allocate(int64_t bytes) {
    std::byte* const memory = start_ + used_;
    used_ += Pages(bytes);
    HADAL_CHECK_LE(used_ + 2 * kLargePage, kRange);
    ++allocations_;
    if (open_) Protect(PROT_READ | PROT_WRITE);
    return memory;
  }
  void Free(std::byte* memory, int64_t bytes) {
    HADAL_CHECK_EQ(madvise(memory, Pages(bytes), MADV_DONTNEED), 0);
    if (--allocations_ == 0 && !open_) used_ = 0;
  }
  void Open() { open_ = true, Protect(PROT_READ | PROT_WRITE); }
  void Close() { open_ = false, Protect(PROT_NONE); }

 private:
  static constexpr int64_t kRange = int64_t{1} << 38, kPage = 4096, kLargePage = 2 << 20;

  static int64_t Pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  void Protect(int protection) {
    const int64_t bytes = (used_ + kLargePage - 1) / kLargePage * kLargePage;  // so that no large page is split
    HADAL_CHECK_EQ(mprotect(start_, bytes, protection), 0);
  }

  std::byte *range_ = nullptr, *start_ = nullptr;
  int64_t used_ = 0, allocations_ = 0;
  bool open_ = false;
};

}  // namespace hadal::testing
