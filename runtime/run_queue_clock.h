// Measures how long a thread was ready to run without a core, because of other programs or of more ranks than cores.
//
// Reads the kernel's counter of the thread (/proc/thread-self/schedstat, second number, nanoseconds); 0 if the kernel
// has none.
// Thread safety: a clock measures the thread that constructed it; any thread may read it. Reading takes about a
// microsecond.
#pragma once

namespace hadal {

class RunQueueClock {
 public:
  RunQueueClock();  // measures the calling thread
  ~RunQueueClock();
  RunQueueClock(const RunQueueClock&) = delete;
  RunQueueClock& operator=(const RunQueueClock&) = delete;

  // Seconds since the thread began; never decreases.
  double Seconds() const;

 private:
  int file_;  // -1: the kernel has no counter
};

}  // namespace hadal
