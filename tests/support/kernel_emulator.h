// Runs CUDA kernels on the CPU for tests, one fiber per thread. Aborts with a message where CUDA's behaviour is
// undefined.
//
// The blocks of a launch run one after another in random order. Within a block a random runnable thread runs until it
// must wait. Results that depend on an order that CUDA does not guarantee therefore differ between two seeds.
// - Shared memory is NaN when a block starts, device memory when it is allocated, so that a read before a write is
//   visible.
// Aborts with the threads and source lines at fault if
// - two threads of a block race for a word of shared memory (shared_races.h);
// - the threads of a block do not reach the same barrier, or the lanes of a warp the same shuffle or fragment
//   operation;
// - an access leaves its allocation or its shared array, or lacks the alignment that its width needs.
// Optionally counts memory accesses (access_counter.h).
// Limitations: warps have 32 lanes, and all take part in a shuffle. Nothing runs concurrently, so a data race in device
// memory is found only if it changes a result with some seed. Timing is meaningless. There are no atomics and no
// asynchronous copies. A tensor core is plain arithmetic (fragment.h).
// Thread safety: an emulator belongs to one OS thread; different ones may run at the same time. Kernels must not throw.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <source_location>
#include <utility>

#include "kernels/cuda/device_view.h"
#include "tests/support/access_counter.h"
#include "tests/support/shared_races.h"

namespace hadal::cuda {

struct LaunchShape {
  int64_t blocks_x = 1, blocks_y = 1;
  int threads = 32;  // per block; REQUIRES: a multiple of 32, at most 1024
};

class KernelEmulator {
 public:
  explicit KernelEmulator(uint64_t seed);
  KernelEmulator(const KernelEmulator&) = delete;
  KernelEmulator& operator=(const KernelEmulator&) = delete;
  ~KernelEmulator();

  // Conversions between the emulator and the handle in launch code.
  StreamHandle stream() { return {reinterpret_cast<CUstream_st*>(this), &launches_}; }
  static KernelEmulator& Of(StreamHandle stream) { return *reinterpret_cast<KernelEmulator*>(stream.stream); }
  // Returns the emulator that runs the calling kernel.
  static KernelEmulator& Current();

  // Returns `bytes` of device memory on a 256-byte boundary, every byte 0xFF: NaN in each float type. Freed with the
  // emulator.
  void* Allocate(int64_t bytes);

  // Allows kernels to access memory that was allocated elsewhere, or ends that.
  void Register(const void* memory, int64_t bytes);
  void Unregister(const void* memory);
  // Sets functions to call before and after the threads of each launch; a device opens and closes its memory there.
  void AroundLaunches(std::function<void()> before, std::function<void()> after);

  // Passes launches to `to` instead of running them; `to` may call them later or never. Null: launches run at once.
  using Diversion = std::function<void(const LaunchShape& shape, std::function<void()> launch)>;
  void Divert(Diversion to) { divert_ = std::move(to); }
  int64_t& launches() { return launches_; }
  int64_t launches() const { return launches_; }
  // Counts the accesses of later launches in `counter`; null: stops.
  void CountAccesses(AccessCounter* counter) { counter_ = counter; }

  // What a test of the race check asks for and finds out during later launches; null: ends that.
  struct RaceStudy {
    const std::source_location* without = nullptr;  // threads pass this barrier without waiting
    std::vector<std::source_location> barriers;     // where blocks have met
    std::string race;                               // the first, instead of aborting
  };
  void StudyRaces(RaceStudy* study) { study_ = study; }

  // Runs body() as each thread of each block and returns when all have returned; or diverts the launch.
  void Run(const LaunchShape& shape, const std::function<void()>& body);

  // Called by thread_layer.h for a thread.
  int thread() const { return running_; }
  const LaunchShape& shape() const { return shape_; }
  int64_t block_x() const { return block_ % shape_.blocks_x; }
  int64_t block_y() const { return block_ / shape_.blocks_x; }
  void Barrier(const std::source_location& where);
  uint64_t Shuffle(uint64_t value, int source_lane, const std::source_location& where);
  // An operation of a whole warp: when all lanes have called it, `work` runs once with the arguments of all lanes; then
  // all lanes continue.
  using WarpWork = void (*)(const std::array<void*, 32>& brought);
  void Together(void* brought, WarpWork work, const std::source_location& where);
  void CheckAccess(AccessKind kind, const void* address, size_t bytes, size_t alignment,
                   const std::source_location& where);
  // Returns the block's array with this identity, the same for all of its threads; NaN at first.
  void* SharedStorage(const void* identity, size_t bytes);
  void NoteSharedAccess(AccessKind kind, const void* address, size_t bytes, const std::source_location& where) {
    const size_t first = static_cast<const std::byte*>(address) - shared_memory_.get();
    const auto race = races_.Note(running_, kind == AccessKind::kSharedStore, first, bytes, where);
    if (race.thread >= 0) Race(kind, race, bytes, where);
    if (counter_ != nullptr) counter_->Note(running_, kind, address, bytes, where);
  }
  // Ends the process with a message that names the thread and the block.
  [[noreturn]] void Fail(const char* format, ...) const __attribute__((format(printf, 2, 3)));

 private:
  enum class State { kRunnable, kAtBarrier, kInWarpWork, kReturned };
  // Fibers switch to one another directly, with the compiler's own setjmp, which stores three words. A quarter of the
  // tests' time would be spent in glibc's and in a scheduler between them.
  using Jump = void* [5];
  struct Fiber {
    Jump jump;
    std::unique_ptr<std::byte[]> stack;  // null until the first switch
    State state = State::kReturned;
    std::source_location where;
    void* brought = nullptr;  // the argument of Together
    WarpWork work = nullptr;
  };

  void RunNow(const LaunchShape& shape, const std::function<void()>& body);
  [[noreturn]] static void FiberMain();
  void StartBlock();
  void RunBlock();
  int Next();
  // Sanitizers would keep the frames that a jump leaves: poisoned, and on ThreadSanitizer's stack of calls.
  [[noreturn, gnu::noinline, gnu::no_sanitize_address, gnu::no_sanitize_thread]] void SwitchTo(int thread);
  [[gnu::no_sanitize_thread]] void Wait(State state, const std::source_location& where);
  void ReleaseIfComplete(int first, int count, State state);
  [[noreturn]] void Diverged() const;
  void Race(AccessKind kind, const SharedRaces::Other& other, size_t bytes, const std::source_location& where);

  // Knuth's; its upper bits are used. A draw is made at each switch.
  std::linear_congruential_engine<uint64_t, 6364136223846793005, 1442695040888963407, 0> random_;
  std::map<const std::byte*, int64_t> allocations_;  // start → bytes
  std::vector<void*> own_;                           // entries of allocations_ to free here
  std::function<void()> before_, after_;
  Diversion divert_;
  int64_t launches_ = 0;
  AccessCounter* counter_ = nullptr;
  RaceStudy* study_ = nullptr;
  std::pair<const std::byte*, int64_t> last_allocation_{nullptr, 0};
  static constexpr size_t kSharedBytes = 48 << 10;  // the most that a kernel may declare
  std::unique_ptr<std::byte[]> shared_memory_ = std::make_unique_for_overwrite<std::byte[]>(kSharedBytes);
  std::map<const void*, size_t> shared_;  // the current block's arrays: identity → first byte
  size_t shared_bytes_ = 0;
  SharedRaces races_;

  LaunchShape shape_;
  const std::function<void()>* body_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<int> runnable_;
  Jump scheduler_;
  int64_t block_ = 0;
  int running_ = -1;
};

// An array in a block's shared memory, with its bounds.
template <typename T>
class SharedArray {
 public:
  // An index with the source line of its use, because operator[] can have no default argument.
  struct Place {
    Place(int64_t i,
          const std::source_location& w = std::source_location::current())  // NOLINT(google-explicit-constructor)
        : index(i), where(w) {}
    int64_t index;
    std::source_location where;
  };

  // An element, which knows whether it is loaded or stored.
  class Element {
   public:
    Element(KernelEmulator& emulator, T* data, const std::source_location& where)
        : emulator_(emulator), data_(data), where_(where) {}
    operator T() const {  // NOLINT(google-explicit-constructor)
      emulator_.NoteSharedAccess(AccessKind::kSharedLoad, data_, sizeof(T), where_);
      return *data_;
    }
    void operator=(const T& value) const {
      emulator_.NoteSharedAccess(AccessKind::kSharedStore, data_, sizeof(T), where_);
      *data_ = value;
    }

   private:
    KernelEmulator& emulator_;
    T* data_;
    std::source_location where_;
  };

  SharedArray(const void* identity, int64_t size)
      : emulator_(&KernelEmulator::Current()),
        data_(static_cast<T*>(emulator_->SharedStorage(identity, size * sizeof(T)))),
        size_(size) {}

  Element operator[](const Place& place) const {
    Check(place.index, 1);
    return {*emulator_, data_ + place.index, place.where};
  }
  SharedArray operator+(int64_t i) const {
    Check(i, 0);
    return SharedArray(emulator_, data_ + i, size_ - i);
  }
  // Access the first four elements at once.
  std::array<T, 4> LoadFour(const std::source_location& where) const { return *Four(AccessKind::kSharedLoad, where); }
  void StoreFour(const std::array<T, 4>& values, const std::source_location& where) const {
    *Four(AccessKind::kSharedStore, where) = values;
  }
  // Stores word `word` (four bytes) of the first element.
  void StoreWord(int word, uint32_t value, const std::source_location& where) const {
    Check(0, 1);
    emulator_->NoteSharedAccess(AccessKind::kSharedStore, &data_->word[word], sizeof(uint32_t), where);
    data_->word[word] = value;
  }

 private:
  static_assert(sizeof(T) % 4 == 0);  // races are found by words

  SharedArray(KernelEmulator* emulator, T* data, int64_t size) : emulator_(emulator), data_(data), size_(size) {}
  void Check(int64_t i, int64_t count) const {
    if (i < 0 || i + count > size_) {
      emulator_->Fail("accesses element %ld of a shared array of %ld", static_cast<long>(i), static_cast<long>(size_));
    }
  }
  std::array<T, 4>* Four(AccessKind kind, const std::source_location& where) const {
    Check(0, 4);
    if (reinterpret_cast<uintptr_t>(data_) % 16 != 0)
      emulator_->Fail("accesses 16 shared bytes that are not 16-byte aligned");
    emulator_->NoteSharedAccess(kind, data_, 4 * sizeof(T), where);
    return reinterpret_cast<std::array<T, 4>*>(data_);
  }

  KernelEmulator* emulator_;
  T* data_;
  int64_t size_;
};

}  // namespace hadal::cuda
