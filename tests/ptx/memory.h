// Memory of interpreted kernels: bytes, which of them are initialised, and who last read and wrote them.
//
// An access is refused (Fault) that leaves its allocation, is misaligned, reads bytes that nobody wrote, or conflicts:
// two threads of a block access the same bytes, at least one writes, and no barrier is between; or two blocks of a
// launch do. Two bytes share one record. Addresses are never reused, so freed memory is outside.
#pragma once

#include <cstdint>
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
  int bytes;
  uint32_t used;  // bit i: byte i of a load is used; the others may be outside
  bool store;
  int thread;  // of the block
};

class Region {
 public:
  Region(uint64_t start, int64_t bytes)
      : start_(start), data_(bytes + kSlack, 0xFF), initialised_(bytes), last_(bytes / 2 + 1) {}

  bool Contains(uint64_t address) const { return address - start_ < initialised_.size(); }
  // Checks and records an access, and returns its first byte, which may be read and written in full.
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
  void Note(Record& record, const Access& access, const Clock& clock);
  void CheckInitialised(const Access& access, uint64_t offset) const;

  static constexpr int kSlack = 16;  // what the unused part of a load may reach beyond the end
  uint64_t start_;
  std::vector<uint8_t> data_, initialised_;
  std::vector<Record> last_;
};

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
