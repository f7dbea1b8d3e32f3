#include "runtime/thread_team.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/clock.h"
#include "runtime/compute_thread.h"
#include "runtime/stream.h"

namespace hadal {
namespace {

TEST(ThreadTeam, RunsEveryIndexOnceAndSeesWhatWorkersWrote) {
  ThreadTeam team;
  for (const int threads : {1, 4, 2, 3, 4}) {
    for (int region = 0; region < 1000; ++region) {
      std::vector<int> seen(threads, 0);  // plain memory: an unordered write would be lost, or be a race to TSan
      team.Run(threads, [&](int t) { ++seen[t]; });
      EXPECT_EQ(seen, std::vector<int>(threads, 1));
    }
  }
}

TEST(ThreadTeam, WorkersSeeWhatTheCallerWroteBetweenRegions) {
  ThreadTeam team;
  int64_t value = 0;
  int64_t sums[2] = {0, 0};
  for (; value < 5000; ++value) team.Run(2, [&](int t) { sums[t] += value; });
  EXPECT_EQ(sums[0], 5000 * 4999 / 2);
  EXPECT_EQ(sums[1], sums[0]);
}

// Long enough that every side falls asleep before the other is ready.
TEST(ThreadTeam, WakesWhoFellAsleep) {
  ThreadTeam team;
  std::atomic<int> done = 0;
  for (int region = 0; region < 20; ++region) {
    team.Run(2, [&](int t) {
      if (t == region % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++done;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(done, 40);
}

// Keeps the caller's part running until `others` other parts have begun, each on a worker; at most `seconds`, because a
// caller that runs all parts would wait for itself.
class WaitForWorkers {
 public:
  explicit WaitForWorkers(int others, double seconds = 60) : others_(others), seconds_(seconds) {}
  void Part(int t) {
    if (t > 0) ++begun_;
    for (const Stopwatch watch; t == 0 && begun_ < others_ && watch.Seconds() < seconds_;) std::this_thread::yield();
  }

 private:
  const int others_;
  const double seconds_;
  std::atomic<int> begun_ = 0;
};

TEST(ThreadTeam, BodiesRunOnThreadsOfTheirOwn) {
  ThreadTeam team;
  std::vector<std::thread::id> ids(3);
  WaitForWorkers workers(2);
  team.Run(3, [&](int t) {
    workers.Part(t);
    ids[t] = std::this_thread::get_id();
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[2], ids[1]);
}

TEST(ThreadTeam, EachThreadHasItsOwn) {
  std::vector<int> sums(4, 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      int parts[2] = {0, 0};
      for (int i = 0; i < 500; ++i) ThreadTeam::OfThisThread().Run(2, [&](int t) { ++parts[t]; });
      sums[rank] = parts[0] + parts[1];
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(sums, std::vector<int>(4, 1000));
}

TEST(ThreadTeam, WhatABodyThrowsReachesTheCallerWhenAllHaveEnded) {
  ThreadTeam team;
  for (const int thrower : {0, 1, 2}) {
    std::atomic<int> ended = 0;
    const auto body = [&](int t) {
      if (t == thrower) throw std::runtime_error(std::to_string(t));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the thrower is the first to end
      ++ended;
    };
    try {
      team.Run(3, body);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(thrower));
    }
    EXPECT_EQ(ended, 2);
    team.Run(3, [&](int) { ++ended; });  // the next region has nothing of it
    EXPECT_EQ(ended, 5);
  }
  EXPECT_THROW(team.Run(2, [](int) { throw std::bad_alloc(); }), std::bad_alloc);
}

// A worker needs microseconds to wake up, and an empty body nanoseconds.
TEST(ThreadTeam, TheCallerRunsThePartOfAWorkerThatHasNotBegun) {
  ThreadTeam team;
  int by_caller = 0;
  for (int region = 0; region < 50; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the worker falls asleep
    team.Run(2, [&, caller = std::this_thread::get_id()](int t) {
      if (t == 1 && std::this_thread::get_id() == caller) ++by_caller;
    });
  }
  EXPECT_GT(by_caller, 0);
  EXPECT_EQ(team.seconds_alone(), 0);
}

// A sleep within the worker's part stands for a core that another program has taken.
class StallTest : public ::testing::Test {
 protected:
  // Sets when the worker's part began and ended.
  void Stall() {
    WaitForWorkers worker(1, /*seconds=*/0.5);
    const double begin = MonotonicSeconds();
    team_.Run(2, [&](int t) {
      worker.Part(t);
      if (t == 0) return;
      worker_began_ = MonotonicSeconds();
      // Longer than four times the caller's part, which waits for this one to begin.
      std::this_thread::sleep_for(std::chrono::duration<double>(0.02 + 5 * std::min(0.1, worker_began_ - begin)));
      worker_ended_ = MonotonicSeconds();
    });
  }
  // Runs regions until the caller no longer runs both parts. Returns the seconds that it did.
  double SecondsAlone() {
    const double before = team_.seconds_alone();
    for (bool alone = true; alone;) {
      const double until_now = team_.seconds_alone(), begin = MonotonicSeconds();
      team_.Run(2, [](int) { std::this_thread::sleep_for(std::chrono::microseconds(100)); });
      alone = team_.seconds_alone() > until_now;
      if (alone) last_alone_ = begin;
    }
    return team_.seconds_alone() - before;
  }

  // Where another program really takes the core, the caller may be late for its time alone: then another stall tells.
  static constexpr int kTries = 1000;

  ThreadTeam team_;
  double worker_began_ = 0, worker_ended_ = 0;
  double last_alone_ = 0;  // when the last region began whose parts the caller ran
};

TEST_F(StallTest, TheCallerRunsAllPartsForAWhile) {
  double alone = 0;
  for (int tries = 0; tries < kTries && alone <= 0.005; ++tries) {
    Stall();
    alone = SecondsAlone();
  }
  EXPECT_GT(alone, 0.005);
}

// Also while the caller runs all parts.
TEST_F(StallTest, WhatABodyThrowsReachesTheCaller) {
  const auto body = [](int t) {
    if (t == 0) throw std::bad_alloc();
  };
  for (int tries = 0; tries < kTries && team_.seconds_alone() == 0; ++tries) {
    Stall();
    EXPECT_THROW(team_.Run(2, body), std::bad_alloc);
  }
  EXPECT_GT(team_.seconds_alone(), 0);
}

TEST_F(StallTest, SoonAfterAnotherItIsTwiceAsLong) {
  for (int tries = 0; tries < kTries; ++tries) {
    Stall();
    const bool soon = last_alone_ > 0 && worker_began_ - last_alone_ < 0.02;  // twice the shortest time alone
    const double ended = worker_ended_;
    if (SecondsAlone() == 0 || !soon) continue;
    EXPECT_GT(MonotonicSeconds() - ended, 0.0199);
    return;
  }
  GTEST_SKIP() << "no stall came soon enough after another: this machine is too busy";
}

TEST(ThreadTeamDeathTest, RefusesARegionInsideARegion) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadTeam team;
        team.Run(1, [&](int) { team.Run(1, [](int) {}); });
      },
      "running_");
}

TEST(StreamTest, RangesCoverEveryItemOnceInWholeGrains) {
  for (int threads : {1, 2, 3, 5}) {
    const Stream stream = Stream::Cpu(threads);
    for (int64_t items : {0, 1, 15, 16, 17, 33, 64, 100, 1000}) {
      int64_t next = 0;
      for (int t = 0; t < threads; ++t) {
        const auto [begin, end] = stream.Range(items, 16, t);
        if (begin == end) continue;
        EXPECT_EQ(begin, next);
        EXPECT_TRUE(end - begin >= 16 || items < 16);
        next = end;
      }
      EXPECT_EQ(next, items) << threads << " threads";
      std::vector<int> seen(items, 0);
      stream.ForRanges(items, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_EQ(seen, std::vector<int>(items, 1));
    }
  }
}

// The product of the smallest normal float and a half, computed where it is called.
float HalfOfTheSmallest() {
  volatile float smallest = 0x1p-126f, half = 0.5f;
  return smallest * half;
}
float TwiceASubnormal() {
  volatile float subnormal = 0x1p-127f, two = 2;
  return subnormal * two;
}
bool HasSignalStack() {
  stack_t stack = {};
  return sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0;
}

TEST(ComputeThread, FlushesSubnormalsOnThisThreadAndOnItsWorkers) {
  float before = -1, after = -1, operand = -1, on_worker = -1;
  bool signal_stack = false, of_worker = false;
  std::thread([&] {
    before = HalfOfTheSmallest();
    PrepareComputeThread();
    after = HalfOfTheSmallest();
    operand = TwiceASubnormal();
    signal_stack = HasSignalStack();
    std::atomic<bool> worker_began = false;
    ThreadTeam::OfThisThread().Run(2, [&](int t) {
      while (t == 0 && !worker_began) std::this_thread::yield();
      worker_began = true;
      if (t == 0) return;
      on_worker = HalfOfTheSmallest();
      of_worker = HasSignalStack();
    });
  }).join();
  EXPECT_EQ(before, 0x1p-127f);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(operand, 0) << "is read as zero";
  EXPECT_EQ(on_worker, 0);
  EXPECT_TRUE(signal_stack && of_worker) << "a stack that overflows is reported on another";
}

}  // namespace
}  // namespace hadal
