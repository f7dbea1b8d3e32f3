#include "runtime/compute_thread.h"

#include <omp.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/thread_team.h"

namespace hadal {
namespace {

// The product of the smallest normal float and a half, computed where it is called.
float HalfOfTheSmallest() {
  volatile float smallest = 0x1p-126f, half = 0.5f;
  return smallest * half;
}

TEST(ComputeThread, FlushesSubnormalsOnThisThreadAndOnItsWorkers) {
  float before = -1, after = -1, on_worker = -1;
  int library_threads = 0;
  std::thread([&] {
    before = HalfOfTheSmallest();
    PrepareComputeThread();
    after = HalfOfTheSmallest();
    library_threads = omp_get_max_threads();
    std::atomic<bool> worker_began = false;
    ThreadTeam::OfThisThread().Run(2, [&](int t) {
      while (t == 0 && !worker_began) std::this_thread::yield();
      worker_began = true;
      if (t == 1) on_worker = HalfOfTheSmallest();
    });
  }).join();
  EXPECT_EQ(before, 0x1p-127f);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(on_worker, 0);
  EXPECT_EQ(library_threads, 1);
}

}  // namespace
}  // namespace hadal
