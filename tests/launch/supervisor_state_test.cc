#include "launch/supervisor_state.h"

#include <signal.h>

#include <array>
#include <ostream>

#include "gtest/gtest.h"

namespace hadal {

std::ostream& operator<<(std::ostream& out, const SupervisorStep& step) {
  return out << "state " << static_cast<int>(step.state) << ", action " << static_cast<int>(step.action);
}

namespace {

using enum SupervisorState;
using enum SupervisorAction;
using Event = SupervisorEvent;

// The table of the header, cell by cell: columns are the events in their order.
struct Row {
  SupervisorState state;
  std::array<SupervisorStep, 10> cells;
};
constexpr SupervisorStep kSaved = {kEnded, kReturn85}, kCode = {kEnded, kReturnCode}, kCrash = {kEnded, kReturnCrash};
constexpr SupervisorStep kGone = {kEnded, kNone}, kStill = {kBackOff, kNone}, kProbes = {kProbing, kProbe},
                         kLooks = {kProbing, kNone};
constexpr Row kTable[] = {
    {kRunning,
     {{{kOrdered, kAsk},
       {kAsked, kAsk},
       {kRunning, kNone},
       kSaved,
       kCode,
       kProbes,
       kCrash,
       {kRunning, kNone},
       {kGrowing, kAsk},
       {kRunning, kNone}}}},
    {kGrowing,
     {{{kOrdered, kAsk},
       {kAsked, kAsk},
       {kGrowing, kAsk},
       kProbes,
       kCode,
       kProbes,
       kCrash,
       {kGrowing, kNone},
       {kGrowing, kNone},
       {kGrowing, kNone}}}},
    {kAsked,
     {{{kOrdered, kAsk},
       {kAsked, kAsk},
       {kAsked, kAsk},
       kSaved,
       kCode,
       kCrash,
       kCrash,
       {kAsked, kNone},
       {kAsked, kNone},
       {kAsked, kNone}}}},
    {kOrdered,
     {{{kTerminating, kTerm},
       {kOrdered, kAsk},
       {kOrdered, kAsk},
       kSaved,
       kCode,
       kCrash,
       kCrash,
       {kOrdered, kNone},
       {kOrdered, kNone},
       {kOrdered, kNone}}}},
    {kTerminating,
     {{{kKilling, kKill},
       {kTerminating, kTerm},
       {kTerminating, kTerm},
       kSaved,
       kCode,
       kCrash,
       kCrash,
       {kTerminating, kNone},
       {kTerminating, kNone},
       {kTerminating, kNone}}}},
    {kKilling,
     {{{kKilling, kKill},
       {kKilling, kKill},
       {kKilling, kKill},
       kSaved,
       kCode,
       kCrash,
       kCrash,
       {kKilling, kNone},
       {kKilling, kNone},
       {kKilling, kNone}}}},
    {kBackOff, {{kSaved, kSaved, kStill, kStill, kStill, kStill, kStill, kProbes, kStill, kStill}}},
    {kProbing,
     {{kSaved,
       kSaved,
       kLooks,
       kLooks,
       kLooks,
       {kBackOff, kWait},
       kCrash,
       kLooks,
       {kRunning, kStart},
       {kBackOff, kWait}}}},
    {kEnded, {{kGone, kGone, kGone, kGone, kGone, kGone, kGone, kGone, kGone, kGone}}},
};

TEST(SupervisorState, EveryCellIsThatOfTheTable) {
  ASSERT_EQ(std::size(kTable), static_cast<size_t>(kEnded) + 1) << "a state without a row";
  static_assert(std::tuple_size_v<decltype(Row::cells)> == static_cast<size_t>(Event::kFew) + 1, "a column each");
  for (const Row& row : kTable) {
    for (size_t event = 0; event < row.cells.size(); ++event) {
      EXPECT_EQ(Next(row.state, static_cast<Event>(event)), row.cells[event])
          << "state " << static_cast<int>(row.state) << ", event " << event;
    }
  }
}

TEST(SupervisorState, ClassifiesTheEndOfAJob) {
  for (const int code : {0, 1, 2, 3, 4, 64}) EXPECT_EQ(EventOf({.code = code}), Event::kFinal) << code;
  for (const int code : {5, 6, 128, 128 + SIGKILL, 205, 255}) {
    EXPECT_EQ(EventOf({.code = code}), Event::kCrash) << code;
    EXPECT_EQ(EventOf({.code = code, .begun = true, .ended = true}), Event::kCrash) << code;
  }
  EXPECT_EQ(EventOf({.code = 85}), Event::kSaved);
  for (const int signal : {SIGBUS, SIGKILL, SIGSYS})
    EXPECT_EQ(EndCode({.code = signal}), 128 + signal) << "MPICH's mpirun";
  for (const int code : {0, 5, 6, 32, 85, 137, 205}) EXPECT_EQ(EndCode({.code = code}), code);
}

// Open MPI 5's mpirun returns 0 when it loses a host; MPICH's returns 4 for SIGILL; a script returns anything.
TEST(SupervisorState, TheCodeIsNoEndThatTheRanksDoNotReport) {
  for (const int code : {0, 1, 2, 3, 4, 64}) {
    EXPECT_EQ(EventOf({.code = code, .begun = true}), Event::kCrash) << code;
    EXPECT_EQ(EventOf({.code = code, .begun = true, .ended = true}), Event::kFinal) << code;
  }
  const JobEnd lost{.code = 0, .begun = true, .ended = true, .failure = 6};
  EXPECT_EQ(EventOf(lost), Event::kCrash);
  const JobEnd diverged{.code = 0, .begun = true, .ended = true, .failure = 4};
  EXPECT_EQ(EventOf(diverged), Event::kFinal);
  EXPECT_EQ(EndCode(diverged), 4);
  EXPECT_EQ(EndCode({.code = 1, .begun = true, .ended = true, .failure = 4}), 4) << "so does Open MPI 4's";
  EXPECT_EQ(EndCode({.code = 137, .begun = true, .ended = true, .failure = 1}), 137) << "the launcher knows more";
}

TEST(SupervisorState, AnElasticJobIsRestartedThatEndsBeforeItsStartOrFailsToSaveWhileGrowing) {
  EXPECT_EQ(EventOf({.code = 0, .elastic = true}), Event::kCrash) << "Open MPI 5 lost a host";
  EXPECT_EQ(EventOf({.code = 2, .elastic = true}), Event::kFinal) << "a bad config";
  EXPECT_EQ(EventOf({.code = 2, .elastic = true, .begun_before = true}), Event::kCrash);
  JobEnd end{.code = 1, .begun = true, .ended = true, .elastic = true, .begun_before = true};
  EXPECT_EQ(EventOf(end), Event::kFinal);
  end.growing = true;
  EXPECT_EQ(EventOf(end), Event::kCrash);
  end.code = 4;
  EXPECT_EQ(EventOf(end), Event::kFinal) << "it has diverged";
}

// TERM to mpirun itself: it returns 1, whether the ranks have saved or not.
TEST(SupervisorState, ALauncherThatReturnsOneMayHaveSavedOrLostTheJob) {
  EXPECT_EQ(EventOf({.code = 1, .begun = true, .ended = true, .saved = true}), Event::kSaved);
  EXPECT_EQ(EventOf({.code = 1, .begun = true}), Event::kCrash);
  EXPECT_EQ(EventOf({.code = 1, .begun = true, .ended = true}), Event::kFinal) << "an error of a rank's own";
}

TEST(SupervisorState, UsrOneBeforeTheJobListensLosesNothing) {
  EXPECT_EQ(EventOf({.code = 128 + SIGUSR1}), Event::kSaved);
  EXPECT_EQ(EventOf({.code = 128 + SIGUSR2}), Event::kSaved);
  EXPECT_EQ(EventOf({.code = 128 + SIGUSR1, .begun = true}), Event::kCrash);
}

TEST(SupervisorState, TheWaitDoublesUpToALimitAndWithProgressStartsAreOnlyKeptApart) {
  EXPECT_EQ(BackOff(0, absl::Seconds(1), absl::Milliseconds(100)), absl::Milliseconds(900));
  EXPECT_EQ(BackOff(0, absl::Seconds(1), absl::Hours(1)), absl::ZeroDuration());
  const absl::Duration first = absl::Seconds(1);
  for (const auto& [fruitless, seconds] : {std::pair(1, 1), {2, 2}, {3, 4}, {9, 256}, {10, 300}, {1000000, 300}}) {
    EXPECT_EQ(BackOff(fruitless, first, absl::Hours(1)), absl::Seconds(seconds)) << fruitless;
  }
  EXPECT_EQ(BackOff(3, absl::Hours(1), absl::ZeroDuration()), absl::Hours(1));
  EXPECT_EQ(BackOff(5, absl::ZeroDuration(), absl::ZeroDuration()), absl::ZeroDuration());
}

}  // namespace
}  // namespace hadal
