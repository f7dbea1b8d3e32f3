// Finds data races in a block's shared memory while a kernel runs on the emulator (kernel_emulator.h).
//
// Two accesses of the same word race if different threads make them, at least one is a store, and no barrier of the
// block lies between them. Threads of one warp are no exception: a shuffle or a tensor-core operation orders no
// accesses (CUDA C++ Programming Guide, "Warp Shuffle Functions"). What is found does not depend on the order in which
// threads ran, so one run of a kernel shows every race of the paths that it takes.
// A word is four bytes. Thread safety: that of the KernelEmulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace hadal::cuda {

class SharedRaces {
 public:
  // An access that races with the one that was noted.
  struct Other {
    int thread = -1;  // -1: none
    std::source_location where;
  };

  // Called before accesses below `bytes`, of a block's shared memory.
  void Cover(size_t bytes);
  // Called when a block starts, and when all its threads have met at a barrier.
  void Meet();
  // Called when a thread loads or stores bytes [first, first + bytes). REQUIRES: whole words.
  Other Note(int thread, bool store, size_t first, size_t bytes, const std::source_location& where) {
    if (!store && only_loaded_[first / kWideBytes] == epoch_ && first % kWideBytes + bytes <= kWideBytes) return {};
    return NoteWords(thread, store, first, bytes, where);
  }

 private:
  static constexpr size_t kWordBytes = 4, kWideBytes = 16;
  struct Access {
    uint32_t epoch = 0;                      // the number of barriers before it, from 1; 0: no access
    int16_t thread = -1, other_thread = -1;  // two of the threads that made it in the epoch

    bool ByAnother(uint32_t now, int mine) const { return epoch == now && (thread != mine || other_thread >= 0); }
    int OtherThan(int mine) const { return thread != mine ? thread : other_thread; }
  };
  struct Word {
    Access load, store;
  };
  struct Places {
    std::source_location load, store;  // the first of the epoch
  };

  Other NoteWords(int thread, bool store, size_t first, size_t bytes, const std::source_location& where);
  // Returns whether the access is the first of the epoch.
  bool Add(Access& access, int thread) const;

  uint32_t epoch_ = 1;
  std::vector<Word> words_;
  std::vector<Places> places_;
  // For each 16 bytes, the epoch in which two threads have loaded every word and none has stored one: a further load
  // changes nothing. Attention loads most of its words so often that its tests would otherwise take twice as long.
  std::vector<uint32_t> only_loaded_;
};

}  // namespace hadal::cuda
