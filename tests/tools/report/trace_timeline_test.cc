#include "tools/report/trace_timeline.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tools/output/trace_writer.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// One step of one rank, which begins at 50 seconds and lasts 3.
class TraceTimelineTest : public ::testing::Test {
 protected:
  TraceTimelineTest() { trace_.ranks = {{.events = {Event(TraceKind::kStep, 0, 3)}}}; }

  static TraceEvent Event(TraceKind kind, double begin, double end, int micro_batch = -1, int64_t step = 3) {
    return {
        .kind = kind, .micro_batch = micro_batch, .step = step, .begin_seconds = 50 + begin, .end_seconds = 50 + end};
  }
  void Add(const TraceEvent& event) { trace_.ranks.back().events.push_back(event); }
  TracedStep Read() const { return TimelineFromTrace(TraceToJson(trace_)).value(); }
  // "LABEL KIND BEGIN-END", in milliseconds, of the last rank.
  std::vector<std::string> Spans() const {
    const TracedStep traced = Read();
    std::vector<std::string> words;
    for (const TimelineSpan& span : traced.timeline.spans.back()) {
      words.push_back(absl::StrCat(span.label, " ", traced.timeline.kinds[span.kind], " ",
                                   static_cast<int>(1e3 * span.begin_seconds + 0.5), "-",
                                   static_cast<int>(1e3 * span.end_seconds + 0.5)));
    }
    return words;
  }

  RunTrace trace_{.first_step = 3, .last_step = 3};
};

TEST_F(TraceTimelineTest, CutsRecomputationOutOfItsBackward) {
  Add(Event(TraceKind::kForward, 0.5, 1, 0));
  Add(Event(TraceKind::kRecompute, 1.6, 1.8, 0));
  Add(Event(TraceKind::kBackward, 1.5, 2.5, 0));
  EXPECT_THAT(Spans(), ElementsAre("F0 forward 500-1000", "B0 backward 1500-1600", "R0 recompute 1600-1800",
                                   "B0 backward 1800-2500"));
}

// Of segments that come one after the other, from the backward's beginning to its end.
TEST_F(TraceTimelineTest, LeavesNothingOfABackwardThatItsRecomputationsFill) {
  Add(Event(TraceKind::kRecompute, 1, 1.5, 7));
  Add(Event(TraceKind::kRecompute, 1.5, 2, 7));
  Add(Event(TraceKind::kBackward, 1, 2, 7));
  EXPECT_THAT(Spans(), ElementsAre("R7 recompute 1000-1500", "R7 recompute 1500-2000"));
}

TEST_F(TraceTimelineTest, WhatEndsAStepIsOneKindAndWaitingAnother) {
  std::vector<std::string> expected;
  int at = 0;
  for (const TraceKind kind : {TraceKind::kTiedGradients, TraceKind::kReduceOverReplicas, TraceKind::kGlobalNorm,
                               TraceKind::kOptimizer, TraceKind::kGatherOverReplicas, TraceKind::kTiedWeights}) {
    Add(Event(kind, 0.1 * at, 0.1 * at + 0.1));
    expected.push_back(absl::StrCat(" sums, norm, optimizer ", 100 * at, "-", 100 * at + 100));
    ++at;
  }
  Add(Event(TraceKind::kDrain, 0.1 * at, 0.1 * at + 0.1));
  expected.push_back(absl::StrCat(" wait ", 100 * at, "-", 100 * at + 100));
  EXPECT_THAT(Spans(), ElementsAreArray(expected));
}

// The receive waits where no arrival was noticed before it.
TEST_F(TraceTimelineTest, MessagesAreDrawnWhereTheyAreWaitedFor) {
  TraceEvent send = Event(TraceKind::kSend, 0.1, 0.2, 0), receive = Event(TraceKind::kReceive, 0.3, 0.4, 0);
  send.channel = 0;
  receive.channel = 2;
  Add(send);
  Add(receive);
  EXPECT_THAT(Spans(), ElementsAre(" wait 300-400"));
}

TEST_F(TraceTimelineTest, ShowsTheMiddleStepFromItsFirstEventOn) {
  for (const int64_t step : {4, 5}) {
    const double at = 10.0 * static_cast<double>(step);
    Add(Event(TraceKind::kStep, at, at + 2, -1, step));
    Add(Event(TraceKind::kForward, at + 1, at + 1.5, static_cast<int>(step), step));
  }
  trace_.ranks[0].clock_error_seconds = 2e-6;
  const TracedStep traced = Read();
  EXPECT_EQ(traced.step, 4);
  EXPECT_DOUBLE_EQ(traced.clock_error_seconds, 2e-6);
  EXPECT_NEAR(traced.timeline.end_seconds, 1.5, 1e-6);
  EXPECT_THAT(Spans(), ElementsAre("F4 forward 1000-1500"));
}

TEST_F(TraceTimelineTest, ARowIsARankInItsOrder) {
  Add(Event(TraceKind::kForward, 0, 3.5, 0));
  trace_.ranks.push_back({.events = {Event(TraceKind::kStep, 0.5, 3), Event(TraceKind::kBackward, 2, 3, 0)}});
  const TracedStep traced = Read();
  EXPECT_THAT(traced.timeline.row_names, ElementsAre("rank 0", "rank 1"));
  ASSERT_EQ(traced.timeline.spans.size(), 2u);
  EXPECT_EQ(traced.timeline.spans[0].size(), 1u);
  EXPECT_THAT(Spans(), ElementsAre("B0 backward 2000-3000"));
  EXPECT_NEAR(traced.timeline.end_seconds, 3.5, 1e-6) << "of the rank that ends last";
}

TEST(TimelineFromTrace, RefusesWhatIsNoTrace) {
  for (const char* wrong :
       {"", "[]", R"({"traceEvents":[{"ph":"X","cat":"step"}]})", R"({"traceEvents":[{"cat":7}]})"}) {
    EXPECT_EQ(TimelineFromTrace(wrong).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
  EXPECT_EQ(TimelineFromTrace("{\"traceEvents\":[]}").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hadal
