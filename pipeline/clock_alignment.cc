#include "pipeline/clock_alignment.h"

#include <limits>

#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kRounds = 16;
constexpr const char* kWhat = "clock alignment";

absl::Status Exchange(absl::StatusOr<CommRequest> posted, Communicator& communicator, absl::Duration timeout) {
  HADAL_RETURN_IF_ERROR(posted.status());
  return communicator.Wait(*posted, absl::Now() + timeout, kWhat);
}

// Answers each of `peer`'s pings with the time.
absl::Status Serve(Communicator& communicator, int peer, absl::FunctionRef<double()> clock, absl::Duration timeout) {
  for (int round = 0; round < kRounds; ++round) {
    double now = 0;
    HADAL_RETURN_IF_ERROR(Exchange(communicator.Receive(&now, sizeof(now), peer, kClockTag), communicator, timeout));
    now = clock();
    HADAL_RETURN_IF_ERROR(Exchange(communicator.Send(&now, sizeof(now), peer, kClockTag), communicator, timeout));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& communicator, absl::FunctionRef<double()> clock,
                                               absl::Duration timeout) {
  if (communicator.rank() == 0) {
    for (int peer = 1; peer < communicator.size(); ++peer) {
      HADAL_RETURN_IF_ERROR(Serve(communicator, peer, clock, timeout));
    }
    return ClockOffset{.at_seconds = clock()};
  }
  double shortest = std::numeric_limits<double>::infinity();
  ClockOffset offset;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = clock();
    double answer = 0;
    HADAL_RETURN_IF_ERROR(Exchange(communicator.Send(&begin, sizeof(begin), 0, kClockTag), communicator, timeout));
    HADAL_RETURN_IF_ERROR(Exchange(communicator.Receive(&answer, sizeof(answer), 0, kClockTag), communicator, timeout));
    const double end = clock();
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    const double middle = begin + (end - begin) / 2;
    offset = {.seconds = middle - answer, .error_seconds = (end - begin) / 2, .at_seconds = middle};
  }
  return offset;
}

double TimeOfRankZero(double t, const ClockOffset& begin, const ClockOffset& end) {
  const double span = end.at_seconds - begin.at_seconds;
  if (span <= 0) return t - begin.seconds;
  return t - (begin.seconds + (end.seconds - begin.seconds) * (t - begin.at_seconds) / span);
}

}  // namespace hadal
