#include "pipeline/engine/program_clock.h"

#include <sched.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

// Binds the calling thread to the first CPU it may run on.
void BindToOneCpu() {
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_SET(cpu, &one);
    break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

// Two threads that compute on one core wait for it, each about half of the time; the sum of waiting and computing is
// what passed.
TEST(RunQueueClock, CountsTheTimeThatANeighbourComputes) {
  std::thread measured([] {
    BindToOneCpu();
    const RunQueueClock clock;
    if (clock.Seconds() == 0) {
      for (int i = 0; i < 1000; ++i) sched_yield();
      if (clock.Seconds() == 0) GTEST_SKIP() << "the kernel keeps no schedstat";
    }
    std::atomic<bool> done = false;
    std::thread neighbour([&] {  // inherits the CPU
      while (!done) {
      }
    });
    const Stopwatch watch;
    const double before = clock.Seconds();
    while (watch.Seconds() < 0.4) {
    }
    const double waited = clock.Seconds() - before, passed = watch.Seconds();  // in this order: less than what passed
    done = true;
    neighbour.join();
    EXPECT_GT(waited, 0.2 * passed);
    EXPECT_LT(waited, passed);
  });
  measured.join();
}

TEST(RunQueueClock, SleepingIsNotWaiting) {
  const RunQueueClock clock;
  const Stopwatch watch;
  const double before = clock.Seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double waited = clock.Seconds() - before;  // after the sleep, on a busy machine
  EXPECT_LE(waited, watch.Seconds() - 0.29);
}

}  // namespace
}  // namespace hadal
