#include "tests/ptx/memory.h"

#include <algorithm>
#include <cstring>

namespace hadal::ptx {
namespace {

constexpr int kManyThreads = -1;

}  // namespace

uint8_t* Region::At(const Access& access, const Clock& clock) {
  const uint64_t offset = access.address - start_;
  if (access.address % access.bytes != 0) throw Fault("misaligned access");
  const int last_used = access.store ? access.bytes : 32 - __builtin_clz(access.used);
  if (offset + last_used > initialised_.size()) throw Fault("outside of the memory");
  if (access.store) {
    std::fill_n(initialised_.begin() + offset, access.bytes, 1);
  } else {
    CheckInitialised(access, offset);
  }
  for (uint64_t i = offset / 2; i <= (offset + last_used - 1) / 2; ++i) Note(last_[i], access, clock);
  return data_.data() + offset;
}

void Region::CheckInitialised(const Access& access, uint64_t offset) const {
  for (int i = 0; i < access.bytes; ++i) {
    if ((access.used >> i & 1) != 0 && initialised_[offset + i] == 0) throw Fault("uninitialised memory is read");
  }
}

void Region::Note(Record& record, const Access& access, const Clock& clock) {
  if (record.write.Unordered(access.thread, clock)) {
    throw Fault(access.store ? "race: written after a write" : "race: read after a write");
  }
  if (access.store) {
    if (record.read.Unordered(access.thread, clock)) throw Fault("race: written after a read");
    record.write = {clock.phase, access.thread};
  } else if (record.read.phase == clock.phase) {
    if (record.read.thread != access.thread) record.read.thread = kManyThreads;
  } else if (!record.read.Unordered(access.thread, clock)) {  // else another block's, which conflicts with more
    record.read = {clock.phase, access.thread};
  }
}

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
