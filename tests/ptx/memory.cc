#include "tests/ptx/memory.h"

#include <algorithm>
#include <cstring>

namespace hadal::ptx {

void Region::Refuse(const char* reason) { throw Fault(reason); }

void Region::Write(uint64_t to, const void* from, int64_t bytes) {
  if (to - start_ + bytes > initialised_.size()) throw Fault("the host writes outside of an allocation");
  std::memcpy(data_.data() + (to - start_), from, bytes);
  std::fill_n(initialised_.begin() + (to - start_), bytes, 1);
}

void Region::Read(void* to, uint64_t from, int64_t bytes) const {
  if (from - start_ + bytes > initialised_.size()) throw Fault("the host reads outside of an allocation");
  std::memcpy(to, data_.data() + (from - start_), bytes);
}

void Region::Forget() {
  std::fill(data_.begin(), data_.end(), 0xFF);
  std::fill(initialised_.begin(), initialised_.end(), 0);
  std::fill(last_.begin(), last_.end(), Record{});
}

uint64_t Global::Allocate(int64_t bytes) {
  constexpr uint64_t kGap = 4096;
  const uint64_t start = next_;
  next_ += (bytes + 2 * kGap - 1) / kGap * kGap;
  regions_.emplace(start, Region(start, bytes));
  return start;
}

Region& Global::Find(uint64_t address) {
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin() || !std::prev(after)->second.Contains(address)) throw Fault("outside of the memory");
  return std::prev(after)->second;
}

}  // namespace hadal::ptx
