#include "runtime/run_queue_clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace hadal {

RunQueueClock::RunQueueClock() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

RunQueueClock::~RunQueueClock() {
  if (file_ >= 0) close(file_);
}

double RunQueueClock::Seconds() const {
  char text[96];
  const ssize_t bytes = file_ < 0 ? 0 : pread(file_, text, sizeof(text) - 1, 0);
  if (bytes <= 0) return 0;
  text[bytes] = '\0';
  unsigned long long running = 0, ready = 0;
  return std::sscanf(text, "%llu %llu", &running, &ready) == 2 ? 1e-9 * static_cast<double>(ready) : 0;
}

}  // namespace hadal
