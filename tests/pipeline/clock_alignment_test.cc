#include "pipeline/clock_alignment.h"

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

TEST(ClockAlignment, OneRankIsItsOwnClock) {
  InProcessWorld world(1);
  const auto offset = MeasureClockOffset(
      world.communicator(0), [] { return MonotonicSeconds(); }, absl::Seconds(1));
  ASSERT_TRUE(offset.ok()) << offset.status();
  EXPECT_EQ(offset->seconds, 0);
}

}  // namespace
}  // namespace hadal
