#include "pipeline/step_tracer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Threads share one clock; each rank adds a skew of its own, which is what must be found.
double Skew(int rank) { return rank * 1000.25; }

TEST(ClockAlignment, FindsTheSkewWithinItsOwnErrorBound) {
  InProcessWorld world(4);
  const absl::Status status = world.Run([](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    const auto clock = [rank] { return MonotonicSeconds() + Skew(rank); };
    HADAL_ASSIGN_OR_RETURN(const ClockOffset offset, MeasureClockOffset(communicator, clock, absl::Seconds(30)));
    EXPECT_LE(std::abs(offset.seconds - Skew(rank)), offset.error_seconds + 1e-9) << "rank " << rank;
    if (rank == 0) {
      EXPECT_EQ(offset.error_seconds, 0);
    } else {
      EXPECT_GT(offset.error_seconds, 0);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Clocks that read what is written here: every ping takes 10 s there and back, and the answer is given late, but for
// the fifth one, which takes 4 s and is answered in its middle.
TEST(ClockAlignment, GoesByTheShortestPingAndItsMiddle) {
  InProcessWorld world(2);
  const absl::Status status = world.Run([](Communicator& communicator) -> absl::Status {
    const bool serves = communicator.rank() == 0;
    int readings = 0;
    const auto clock = [serves, &readings] {
      const int ping = serves ? readings : readings / 2;
      const bool ends = !serves && readings % 2 == 1;
      ++readings;
      const double begin = 1000.0 * ping;
      if (serves) return begin + (ping == 4 ? 2 : 9) - 500;
      return ends ? begin + (ping == 4 ? 4 : 10) : begin;
    };
    HADAL_ASSIGN_OR_RETURN(const ClockOffset offset, MeasureClockOffset(communicator, clock, absl::Seconds(30)));
    if (serves) {
      EXPECT_EQ(offset.at_seconds, 1000.0 * (readings - 1) + 9 - 500) << "its last reading";
      return absl::OkStatus();
    }
    EXPECT_EQ(offset.seconds, 500);
    EXPECT_EQ(offset.error_seconds, 2);
    EXPECT_EQ(offset.at_seconds, 4002);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A clock that is 2 s ahead of rank 0's at its own 100 s, and 3 s at its 200 s.
TEST(ClockAlignment, TakesTheOffsetOnTheLineOffTheRanksTime) {
  const ClockOffset begin{.seconds = 2, .at_seconds = 100}, end{.seconds = 3, .at_seconds = 200};
  EXPECT_EQ(TimeOfRankZero(100, begin, end), 98);
  EXPECT_EQ(TimeOfRankZero(150, begin, end), 147.5);
  EXPECT_EQ(TimeOfRankZero(150, begin, begin), 148) << "measured once";
}

TEST(ClockAlignment, ARankThatDoesNotAnswerIsAnError) {
  for (const int rank : {0, 1}) {
    InProcessWorld world(2);
    const auto offset = MeasureClockOffset(
        world.communicator(rank), [] { return MonotonicSeconds(); }, absl::Milliseconds(10));
    EXPECT_EQ(offset.status().code(), absl::StatusCode::kDeadlineExceeded) << rank << ": " << offset.status();
  }
}

TEST(ClockAlignment, OneRankIsItsOwnClock) {
  InProcessWorld world(1);
  const auto offset = MeasureClockOffset(
      world.communicator(0), [] { return MonotonicSeconds(); }, absl::Seconds(1));
  ASSERT_TRUE(offset.ok()) << offset.status();
  EXPECT_EQ(offset->seconds, 0);
}

}  // namespace
}  // namespace hadal
