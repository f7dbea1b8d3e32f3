// Times add up on both kinds of device, and on an emulated one whose work is late the host goes on.
#include "pipeline/engine/program_clock.h"

#include <sched.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/clock.h"
#include "tests/support/emulated_device.h"

namespace hadal::testing {
namespace {

constexpr auto kForward = &StageTimes::forward_seconds;
constexpr auto kBackward = &StageTimes::backward_seconds;

class ProgramClockTest : public ::testing::TestWithParam<bool> {
 protected:
  ProgramClockTest() {
    EXPECT_TRUE(clock_.Prepare(GetParam() ? &device_ : nullptr).ok());
    trace_.Reserve(100);
    trace_.Start(1);
    clock_.Begin(times_, trace_, meanwhile_);
  }

  EmulatedDevice device_;
  ProgramClock clock_;
  TraceBuffer trace_;
  StageTimes times_;
  std::function<void()> meanwhile_ = [] {};
};

TEST_P(ProgramClockTest, AnInstructionLastsFromTheEndOfTheOneBefore) {
  clock_.Mark(kForward, TraceEvent{.kind = TraceKind::kForward, .micro_batch = 3});
  clock_.Mark(kBackward);  // the first part of the next
  clock_.Mark(&StageTimes::communication_seconds, TraceEvent{.kind = TraceKind::kBackward});
  clock_.AwaitAll();
  ASSERT_EQ(trace_.events().size(), 2u);
  const TraceEvent &first = trace_.events()[0], &second = trace_.events()[1];
  EXPECT_EQ(first.kind, TraceKind::kForward);
  EXPECT_EQ(first.micro_batch, 3);
  EXPECT_EQ(second.kind, TraceKind::kBackward);
  EXPECT_GE(first.end_seconds, first.begin_seconds);
  EXPECT_EQ(second.begin_seconds, first.end_seconds);
  EXPECT_NEAR(times_.forward_seconds, first.end_seconds - first.begin_seconds, 1e-9);
  EXPECT_NEAR(times_.backward_seconds + times_.communication_seconds, second.end_seconds - second.begin_seconds, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ProgramClockTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Device" : "Cpu"; });

class DeviceClockTest : public ProgramClockTest {
 protected:
  DeviceClockTest() { device_.emulated_queues().DelayMain(gate_); }
  const std::shared_ptr<HeldWork> gate_ = std::make_shared<HeldWork>();
};

TEST_P(DeviceClockTest, TheHostGoesOnBeforeTheDeviceIsThere) {
  const int64_t mark = clock_.Mark(kForward, TraceEvent{});
  clock_.Mark(kForward, TraceEvent{});
  EXPECT_FALSE(clock_.Poll());
  EXPECT_EQ(trace_.events().size(), 0u);
  gate_->done = true;
  clock_.Await(mark);
  EXPECT_EQ(trace_.events().size(), 1u);
  EXPECT_TRUE(clock_.Poll());
  EXPECT_EQ(trace_.events().size(), 2u);
}

TEST_P(DeviceClockTest, NotFartherThanItsEventsReach) {
  int waits = 0;
  meanwhile_ = [&] { gate_->done = ++waits == 3; };
  for (int64_t i = 0; i < ProgramClock::kMostAhead; ++i) clock_.Mark(kForward);
  EXPECT_EQ(waits, 0);
  clock_.Mark(kForward);
  EXPECT_EQ(waits, 3) << "until the oldest mark is reached";
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceClockTest, ::testing::Values(true));

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
    double share = 0;
    for (int tries = 0; tries < 10 && share <= 0.2; ++tries) {  // a virtual machine may stand still while this computes
      const Stopwatch watch;
      const double before = clock.Seconds();
      while (watch.Seconds() < 0.4) {
      }
      const double waited = clock.Seconds() - before, passed = watch.Seconds();  // in this order: less than what passed
      EXPECT_LT(waited, passed);
      share = waited / passed;
    }
    done = true;
    neighbour.join();
    EXPECT_GT(share, 0.2);
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
}  // namespace hadal::testing
