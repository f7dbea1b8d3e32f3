#include "runtime/trace.h"

#include <gmock/gmock.h>

#include <set>

namespace hadal {
namespace {

using ::testing::ElementsAre;

TEST(TraceBuffer, RecordsOnlyBetweenStartAndStop) {
  TraceBuffer trace;
  trace.Reserve(8);
  trace.Add({.kind = TraceKind::kForward});
  EXPECT_EQ(trace.Now(), 0);
  trace.Start(7);
  EXPECT_GT(trace.Now(), 0);
  trace.Add({.kind = TraceKind::kBackward, .chunk = 1, .micro_batch = 2});
  trace.Stop();
  trace.Add({.kind = TraceKind::kForward});
  ASSERT_EQ(trace.events().size(), 1u);
  EXPECT_EQ(trace.events()[0].kind, TraceKind::kBackward);
  EXPECT_EQ(trace.events()[0].step, 7);
  EXPECT_EQ(trace.events()[0].chunk, 1);
  EXPECT_EQ(trace.dropped(), 0);
}

TEST(TraceBuffer, DropsAndCountsWhatDoesNotFitAndNeverMoves) {
  TraceBuffer trace;
  trace.Reserve(3);
  trace.Start(0);
  trace.Add({});
  const TraceEvent* const memory = trace.events().data();
  for (int i = 0; i < 9; ++i) trace.Add({});
  EXPECT_EQ(trace.events().size(), 3u);
  EXPECT_EQ(trace.dropped(), 7);
  EXPECT_EQ(trace.events().data(), memory);
  trace.Clear();
  trace.Add({});
  EXPECT_EQ(trace.events().size(), 1u);
  EXPECT_EQ(trace.dropped(), 0);
  EXPECT_EQ(trace.events().data(), memory);
}

TEST(TraceBuffer, WithoutMemoryEverythingIsDropped) {
  TraceBuffer trace;
  trace.Start(0);
  trace.Add({});
  EXPECT_TRUE(trace.events().empty());
  EXPECT_EQ(trace.dropped(), 1);
  trace.Stop();
  trace.Reserve(2);
  EXPECT_EQ(trace.dropped(), 0) << "of the memory before";
}

TEST(TracePause, LeavesAStoppedBufferStopped) {
  TraceBuffer trace;
  trace.Reserve(8);
  { const TracePause pause(trace); }
  EXPECT_FALSE(trace.recording());
  trace.Start(2);
  {
    const TracePause pause(trace);
    trace.Add({});
  }
  trace.Add({});
  ASSERT_EQ(trace.events().size(), 1u);
  EXPECT_EQ(trace.events()[0].step, 2);
}

TEST(TraceScope, NestsAndTakesNullAndAStoppedBuffer) {
  TraceBuffer trace;
  trace.Reserve(8);
  { const TraceScope nobody(nullptr, {}); }
  { const TraceScope stopped(&trace, {}); }
  EXPECT_TRUE(trace.events().empty());
  trace.Start(3);
  {
    const TraceScope outer(&trace, {.kind = TraceKind::kBackward});
    const TraceScope inner(&trace, {.kind = TraceKind::kRecompute});
  }
  ASSERT_EQ(trace.events().size(), 2u);
  const TraceEvent& inner = trace.events()[0];
  const TraceEvent& outer = trace.events()[1];
  EXPECT_EQ(inner.kind, TraceKind::kRecompute);
  EXPECT_LE(outer.begin_seconds, inner.begin_seconds);
  EXPECT_LE(inner.begin_seconds, inner.end_seconds);
  EXPECT_LE(inner.end_seconds, outer.end_seconds);
}

class Listener : public Profiler {
 public:
  void Begin(const char* text) override { seen.emplace_back(text); }
  void End() override { seen.emplace_back("end"); }
  std::vector<std::string> seen;
};

// Recording or not. What is usual, or does not apply, is left unsaid.
TEST(TraceScope, AProfilerSeesItInWords) {
  TraceBuffer trace;
  Listener listener;
  trace.ShowTo(&listener, 1);
  { const TraceScope scope(&trace, {.kind = TraceKind::kForward, .chunk = 0, .micro_batch = 0}); }
  { const TraceScope scope(&trace, {.kind = TraceKind::kBackward, .chunk = 2, .micro_batch = 3}); }
  { const TraceScope scope(&trace, {.kind = TraceKind::kGlobalNorm}); }
  EXPECT_THAT(listener.seen,
              ElementsAre("stage 1 forward, micro-batch 0", "end", "stage 1 backward, chunk 2, micro-batch 3", "end",
                          "stage 1 global norm", "end"));
}

TEST(TraceKindName, IsAnotherForEachKind) {
  std::set<std::string> names;
  for (int kind = 0; kind < kTraceKinds; ++kind) names.insert(TraceKindName(static_cast<TraceKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kTraceKinds));
}

}  // namespace
}  // namespace hadal
