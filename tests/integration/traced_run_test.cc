// A traced training run of several ranks: the merged file is sound, complete and tells of the right steps; the run's
// bits are those of the same run without a trace.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/chrome_trace_check.h"
#include "tests/support/temporary_directory.h"
#include "tools/output/trace_writer.h"

namespace hadal::testing {
namespace {

using ::testing::IsEmpty;

constexpr int kVocabulary = 97;
constexpr int kMicroBatches = 5;

struct Outcome {
  RunTrace trace;
  double nll = 0;
};

// The last step's nll.
class LastNll : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { nll = metrics.nll; }
  double nll = 0;
};

Outcome TrainTraced(int ranks, const PipelineOptions& layout, int64_t first, int64_t last) {
  const Corpus corpus = RandomCorpus(300, 20, kVocabulary, 3);
  const TemporaryDirectory run;
  TrainOptions options{.run_directory = run.path(),
                       .model = SmallModel(ResidualMethod::kDeepNorm, {.d_model = 32, .vocabulary = kVocabulary}),
                       .batch = {.micro_batches = kMicroBatches, .source_tokens = 64, .target_tokens = 64},
                       .pipeline = layout,
                       .stop = {.steps = 6},
                       .validation = {.every_steps = 3},
                       .checkpoint = {.every_steps = 3}};
  Outcome outcome;
  const TraceRequest request{
      .first_step = first, .last_step = last, .write = [&](const RunTrace& trace) { outcome.trace = trace; }};
  LastNll sink;
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    return WithTrainer(options,
                       {.communicator = communicator,
                        .stream = Stream::Cpu(1),
                        .train = corpus,
                        .validation = &corpus,
                        .sink = sink,
                        .trace = request},
                       [](Trainer& trainer) { return trainer.Run().status(); });
  });
  EXPECT_TRUE(status.ok()) << status;
  outcome.nll = sink.nll;
  return outcome;
}

std::map<TraceKind, int> CountKinds(const RankTrace& rank) {
  std::map<TraceKind, int> counts;
  for (const TraceEvent& event : rank.events) ++counts[event.kind];
  return counts;
}

TEST(Trace, OfThreeStagesIsSoundAndComplete) {
  const Outcome outcome = TrainTraced(3, {.recompute_every = 4}, 3, 4);
  const RunTrace& trace = outcome.trace;
  ASSERT_EQ(trace.ranks.size(), 3u);
  EXPECT_EQ(trace.first_step, 3);
  EXPECT_EQ(trace.last_step, 4);
  EXPECT_THAT(TraceFaults(TraceToJson(trace)), IsEmpty());
  for (int rank = 0; rank < 3; ++rank) {
    std::map<TraceKind, int> counts = CountKinds(trace.ranks[rank]);
    EXPECT_EQ(trace.ranks[rank].dropped, 0);
    EXPECT_EQ(counts[TraceKind::kStep], 2) << rank;
    EXPECT_EQ(counts[TraceKind::kForward], 2 * kMicroBatches) << rank;
    EXPECT_EQ(counts[TraceKind::kBackward], 2 * kMicroBatches) << rank;
    EXPECT_GE(counts[TraceKind::kRecompute], 2 * kMicroBatches) << rank;
    const int neighbours = rank == 1 ? 2 : 1;
    EXPECT_EQ(counts[TraceKind::kSend], 2 * kMicroBatches * neighbours) << rank;
    EXPECT_EQ(counts[TraceKind::kReceive], 2 * kMicroBatches * neighbours) << rank;
    EXPECT_EQ(counts[TraceKind::kOptimizer], 2) << rank;
    EXPECT_EQ(counts[TraceKind::kValidation], 1) << rank;  // after step 3
    EXPECT_EQ(counts[TraceKind::kCheckpoint], 1) << rank;
    for (const TraceEvent& event : trace.ranks[rank].events) EXPECT_TRUE(event.step == 3 || event.step == 4);
  }
}

TEST(Trace, OfInterleavedChunksIsSound) {
  const Outcome outcome = TrainTraced(2, {.chunks = 3, .schedule = ScheduleKind::kInterleaved1F1B}, 1, 1);
  const std::string json = TraceToJson(outcome.trace);
  EXPECT_THAT(TraceFaults(json), IsEmpty());
  int arrows = 0;
  const auto trace = nlohmann::json::parse(json);
  for (const auto& event : trace["traceEvents"]) arrows += event["ph"] == "s";
  EXPECT_EQ(arrows, 2 * 5 * kMicroBatches);  // five borders, there and back
}

TEST(Trace, AWindowThatOutlastsTheRunIsWritten) {
  const Outcome outcome = TrainTraced(2, {}, 6, 100);
  EXPECT_EQ(outcome.trace.first_step, 6);
  EXPECT_EQ(outcome.trace.last_step, 6);
  ASSERT_EQ(outcome.trace.ranks.size(), 2u);
  EXPECT_EQ(CountKinds(outcome.trace.ranks[1])[TraceKind::kForward], kMicroBatches);
}

TEST(Trace, ChangesNoBit) {
  const double without = TrainTraced(2, {}, 0, -1).nll;
  EXPECT_EQ(TrainTraced(2, {}, 0, 5).nll, without);
}

}  // namespace
}  // namespace hadal::testing
