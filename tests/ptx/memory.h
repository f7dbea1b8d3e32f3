// Memory of interpreted kernels: bytes, which of them are initialised, and who last read and wrote them.
//
// An access is refused (Fault) that leaves its allocation, is misaligned, reads bytes that nobody wrote, or conflicts:
// two threads of a block access the same bytes, at least one writes, and no barrier is between; or two blocks of a
// launch do. Two bytes share one record. Addresses are never reused, so freed memory is outside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace hadal::ptx {

// What a kernel did wrong, or what the interpreter cannot run.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Phases are numbered over all launches; a block starts one, and each of its barriers.
struct Clock {
  uint32_t launch = 1, block = 1, phase = 1;  // the first phase of the launch and of the block; the current one
};

struct Access {
  uint64_t address;
  uint32_t used;  // bit i: byte i of a load is used; the others may be outside
  int thread;     // of the block
};

class Region {
 public:
  Region(uint64_t start, int64_t bytes)
      : start_(start), data_(bytes + kSlack, 0xFF), initialised_(bytes), last_(bytes / 2 + 1), read_(bytes / 16 + 1) {}

  bool Contains(uint64_t address) const { return address - start_ < initialised_.size(); }
  // Checks and records an access of `bytes`, and returns its first byte, which may be read and written in full. Most of
  // the interpreter's time is spent here: the number of bytes is a constant, and the function is inlined.
  template <bool store, int bytes>
  uint8_t* At(const Access& access, const Clock& clock);
  // For the host: no checks but the bounds.
  void Write(uint64_t to, const void* from, int64_t bytes);
  void Read(void* to, uint64_t from, int64_t bytes) const;
  void Forget();  // For a new block: all bytes become uninitialised, and nobody accessed them.

 private:
  struct Touch {
    uint32_t phase = 0;
    int32_t thread = 0;
    // Whether nothing orders this access and one of `by`.
    bool Unordered(int by, const Clock& now) const {
      return phase >= now.launch && (phase < now.block || (phase == now.phase && thread != by));
    }
  };
  struct Record {
    Touch write, read;
  };
  template <bool store>
  static void Note(Record& record, int thread, const Clock& clock);
  [[noreturn]] static void Refuse(const char* reason);

  static constexpr int kSlack = 16;  // what the unused part of a load may reach beyond the end
  static constexpr int kManyThreads = -1;
  uint64_t start_;
  std::vector<uint8_t> data_, initialised_;
  std::vector<Record> last_;
  // For each 16 bytes, the last phase in which several threads have read all of them: a further load changes nothing,
  // and a store would be a race.
  std::vector<uint32_t> read_;
};

template <bool store, int bytes>
inline uint8_t* Region::At(const Access& access, const Clock& clock) {
  constexpr uint32_t kAll = static_cast<uint32_t>((uint64_t{1} << bytes) - 1);
  const uint64_t offset = access.address - start_;
  const bool whole = store || access.used == kAll;
  const int last_used = whole ? bytes : 32 - __builtin_clz(access.used);
  if (access.address % bytes != 0) Refuse("misaligned access");
  if (offset + last_used > initialised_.size()) Refuse("outside of the memory");
  uint8_t* const initialised = initialised_.data() + offset;
  Record* const records = last_.data() + offset / 2;
  if (!store && bytes <= 16 && read_[offset / 16] == clock.phase) return data_.data() + offset;
  if constexpr (store) std::memset(initialised, 1, bytes);
  if (whole) {  // constant lengths
    if (!store && std::memcmp(initialised, "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1", bytes) != 0)
      Refuse("uninitialised memory is read");
    for (int i = 0; i <= (bytes - 1) / 2; ++i) Note<store>(records[i], access.thread, clock);
    const auto by_many = [&](const Record& r) { return r.read.phase == clock.phase && r.read.thread == kManyThreads; };
    if (!store && bytes == 16 && std::all_of(records, records + 8, by_many)) read_[offset / 16] = clock.phase;
  } else {
    for (int i = 0; i < last_used; ++i) {
      if ((access.used >> i & 1) != 0 && initialised[i] == 0) Refuse("uninitialised memory is read");
    }
    for (int i = 0; i <= (last_used - 1) / 2; ++i) Note<store>(records[i], access.thread, clock);
  }
  return data_.data() + offset;
}

template <bool store>
inline void Region::Note(Record& record, int thread, const Clock& clock) {
  if (record.write.Unordered(thread, clock)) Refuse(store ? "race: written after a write" : "race: read after a write");
  if constexpr (store) {
    if (record.read.Unordered(thread, clock)) Refuse("race: written after a read");
    record.write = {clock.phase, thread};
  } else if (record.read.phase == clock.phase) {
    if (record.read.thread != thread) record.read.thread = kManyThreads;
  } else if (!record.read.Unordered(thread, clock)) {  // else another block's, which conflicts with more
    record.read = {clock.phase, thread};
  }
}

// The device's memory.
class Global {
 public:
  uint64_t Allocate(int64_t bytes);
  void Free(uint64_t address) { regions_.erase(address); }
  Region& Find(uint64_t address);  // throws Fault if no allocation contains `address`

 private:
  std::map<uint64_t, Region> regions_;
  uint64_t next_ = uint64_t{1} << 40;
};

}  // namespace hadal::ptx
