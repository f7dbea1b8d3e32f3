// How long a thread was ready to run while its cores did other work: for a neighbour, or for more ranks than cores.
//
// The kernel counts it for each thread (/proc/thread-self/schedstat, second number, nanoseconds). Zero where it does
// not.
// Thread safety: a clock measures the thread that made it; any thread may read it. Reading takes about a microsecond.
#pragma once

namespace hadal {

class RunQueueClock {
 public:
  RunQueueClock();  // of the calling thread
  ~RunQueueClock();
  RunQueueClock(const RunQueueClock&) = delete;
  RunQueueClock& operator=(const RunQueueClock&) = delete;

  // Seconds since the thread began; never decreases.
  double Seconds() const;

 private:
  int file_;  // -1: the kernel does not say
};

}  // namespace hadal
