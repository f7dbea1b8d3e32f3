// How long a thread has been ready to run while its cores did other work: what a neighbour, or more ranks than cores, takes from it.
//
// The kernel keeps it for each thread (/proc/thread-self/schedstat, second number, nanoseconds). Where it does not, zero.
// Thread safety: a clock belongs to the thread that made it; it may be read by any. A reading costs about a microsecond.
#pragma once

namespace hadal {

class RunQueueClock {
 public:
  RunQueueClock();  // of the calling thread
  ~RunQueueClock();
  RunQueueClock(const RunQueueClock&) = delete;
  RunQueueClock& operator=(const RunQueueClock&) = delete;

  // Since the thread began; never set back.
  double Seconds() const;

 private:
  int file_;  // -1: the kernel does not say
};

}  // namespace hadal
