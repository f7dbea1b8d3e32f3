#include "pipeline/step_tracer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/message_tags.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kRounds = 16;
constexpr const char* kWhat = "trace";

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

namespace {

// 9 MiB a rank. A step of 500 micro-batches of 60 recomputed segments fits; what does not is counted.
constexpr int64_t kMostEvents = int64_t{1} << 17;

// What travels in front of a rank's events.
struct Header {
  char host[64] = {};
  double clock_error_seconds = 0;
  int64_t dropped = 0;
  int64_t events = 0;
};

absl::StatusOr<RankTrace> Unpack(std::string_view bytes, int rank) {
  Header header;
  if (!TakeValue(bytes, header)) return InternalError("trace of rank ", rank, ": too short");
  if (bytes.size() != header.events * sizeof(TraceEvent)) {
    return InternalError("trace of rank ", rank, ": ", bytes.size(), " bytes for ", header.events,
                         " events. Start every rank with the same binary.");
  }
  RankTrace trace{.host = header.host, .clock_error_seconds = header.clock_error_seconds, .dropped = header.dropped};
  trace.events.resize(static_cast<size_t>(header.events));
  HADAL_CHECK(TakeValues(bytes, std::span(trace.events)));
  return trace;
}

}  // namespace

StepTracer::StepTracer(TraceRequest request, Communicator& communicator, TraceBuffer& trace, absl::Duration timeout)
    : request_(std::move(request)), communicator_(communicator), trace_(trace), timeout_(timeout) {
  if (request_.wanted()) trace_.Reserve(kMostEvents);
}

absl::Status StepTracer::BeforeStep(int64_t step) {
  if (step < request_.first_step || step > request_.last_step) return absl::OkStatus();
  if (!open_) {
    HADAL_ASSIGN_OR_RETURN(begin_, MeasureClockOffset(communicator_, MonotonicSeconds, timeout_));
    open_ = true;
    first_ = step;
  }
  last_ = step;
  trace_.Start(step);
  return absl::OkStatus();
}

absl::Status StepTracer::AfterStep(int64_t step) {
  trace_.Stop();
  return open_ && step >= request_.last_step ? Collect() : absl::OkStatus();
}

absl::Status StepTracer::Finish() { return open_ ? Collect() : absl::OkStatus(); }

std::string StepTracer::Pack(const ClockOffset& end) const {
  Header header{.clock_error_seconds = std::max(begin_.error_seconds, end.error_seconds),
                .dropped = trace_.dropped(),
                .events = static_cast<int64_t>(trace_.events().size())};
  const std::string host = HostName();
  std::memcpy(header.host, host.data(), std::min(host.size(), sizeof(header.host) - 1));
  std::string bytes;
  bytes.reserve(sizeof(header) + trace_.events().size_bytes());
  AppendValue(header, bytes);
  for (TraceEvent event : trace_.events()) {
    event.begin_seconds = TimeOfRankZero(event.begin_seconds, begin_, end);
    event.end_seconds = TimeOfRankZero(event.end_seconds, begin_, end);
    AppendValue(event, bytes);
  }
  return bytes;
}

absl::Status StepTracer::Collect() {
  open_ = false;
  HADAL_ASSIGN_OR_RETURN(const ClockOffset end, MeasureClockOffset(communicator_, MonotonicSeconds, timeout_));
  const std::string mine = Pack(end);
  trace_.Clear();
  if (communicator_.rank() != 0) return SendBytes(communicator_, mine, /*peer=*/0, timeout_, kWhat);
  RunTrace trace{.first_step = first_, .last_step = last_};
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    std::string bytes = rank == 0 ? mine : "";
    if (rank != 0) HADAL_RETURN_IF_ERROR(ReceiveBytes(communicator_, bytes, rank, timeout_, kWhat));
    HADAL_ASSIGN_OR_RETURN(RankTrace of_rank, Unpack(bytes, rank));
    trace.ranks.push_back(std::move(of_rank));
  }
  if (request_.write) request_.write(trace);
  return absl::OkStatus();
}

}  // namespace hadal
