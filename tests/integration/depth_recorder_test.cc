// The instruments that see the depth: they change no bit of training, their numbers are the same bits for every layout,
// and the numbers are what a plain computation in double precision gives.
#include "pipeline/instruments/depth_recorder.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/safetensors.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 97;

RunSpec BaseSpec(ResidualMethod method) {
  RunSpec spec;
  spec.model = SmallModel(method, {.d_model = 32, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 4, .source_tokens = 64, .target_tokens = 64};
  spec.optimizer.clip_norm = 0.5;
  spec.optimizer.weight_decay = 0.01;
  return spec;
}

Corpus SmallCorpus() { return RandomCorpus(200, 20, kVocabulary, 5); }

RunOutcome TrainRecording(RunSpec spec) {
  const TemporaryDirectory directory;
  spec.depth_directory = directory.path();
  return Train(spec, SmallCorpus());
}

// "" when both are the same bits.
std::string FirstDifference(const std::vector<DepthMetrics>& a, const std::vector<DepthMetrics>& b) {
  if (a.size() != b.size()) return "different numbers of records";
  for (size_t step = 0; step < a.size(); ++step) {
    if (a[step].model_update != b[step].model_update) return absl::StrCat("model_update of step ", step);
    for (size_t s = 0; s < kDepthSeriesCount; ++s) {
      const std::vector<float>&x = a[step].series[s], &y = b[step].series[s];
      if (x.size() != y.size()) return absl::StrCat("length of ", kDepthSeries[s].name);
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::memcmp(&x[i], &y[i], sizeof(float)) == 0) continue;
        return absl::StrCat(kDepthSeries[s].name, " of step ", step, ", sublayer ", i, ": ", x[i], " vs. ", y[i]);
      }
    }
  }
  return "";
}

class DepthRecorderTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(DepthRecorderTest, ChangesNoBitOfTraining) {
  for (const int ranks : {1, 3}) {
    RunSpec spec = BaseSpec(GetParam());
    spec.ranks = ranks;
    EXPECT_EQ(FirstDifference(Train(spec, SmallCorpus()), TrainRecording(spec)), "") << ranks << " ranks";
  }
}

TEST_P(DepthRecorderTest, RecordsTheSameBitsInEveryLayout) {
  const RunOutcome reference = TrainRecording(BaseSpec(GetParam()));
  ASSERT_EQ(reference.depth.size(), 3u);
  struct Layout {
    int ranks, threads, chunks, recompute_every;
    ScheduleKind schedule;
  };
  for (const Layout& layout :
       {Layout{2, 2, 1, 0, ScheduleKind::k1F1B}, Layout{3, 1, 1, 3, ScheduleKind::kGpipe},
        Layout{4, 2, 1, 1, ScheduleKind::k1F1B}, Layout{2, 1, 3, 4, ScheduleKind::kInterleaved1F1B}}) {
    RunSpec spec = BaseSpec(GetParam());
    spec.ranks = layout.ranks;
    spec.threads = layout.threads;
    spec.pipeline.chunks = layout.chunks;
    spec.pipeline.recompute_every = layout.recompute_every;
    spec.pipeline.schedule = layout.schedule;
    EXPECT_EQ(FirstDifference(reference.depth, TrainRecording(spec).depth), "") << layout.ranks << " ranks";
  }
}

// Where a method has a tensor, every sublayer has a number, and nowhere else.
TEST_P(DepthRecorderTest, RecordsWhatThereIs) {
  const RunSpec spec = BaseSpec(GetParam());
  const DepthMetrics depth = TrainRecording(spec).depth.back();
  const ModelPlan plan = ModelPlan::Make(spec.model);
  size_t place = 0;
  for (const SublayerRecord& sublayer : plan.sublayers) {
    if (sublayer.layer < 0) continue;
    const bool starts = plan.begins_stack(static_cast<int32_t>(&sublayer - plan.sublayers.data()));
    for (size_t s = 0; s < kDepthSeriesCount; ++s) {
      const auto series = static_cast<DepthSeries>(s);
      const bool everywhere = series != DepthSeries::kSecondStream || GetParam() == ResidualMethod::kResidualDual;
      ASSERT_EQ(depth.series[s].size(), everywhere ? 5u * 2 + 7u * 3 : 0) << kDepthSeries[s].name;
      if (!everywhere) continue;
      const bool of_norm = series == DepthSeries::kNormInput || series == DepthSeries::kNormInputGradient ||
                           series == DepthSeries::kNormOutputGradient;
      // Where the gradient of a second stream's start is added to it.
      const bool lost = series == DepthSeries::kNormInputGradient && sublayer.second_gain != 0 && starts;
      const bool exists = of_norm                          ? sublayer.norm != NormPlacement::kNone && !lost
                          : series == DepthSeries::kActive ? sublayer.kind == SublayerKind::kFeedForward
                                                           : true;
      const float value = depth.series[s][place];
      EXPECT_EQ(std::isnan(value), !exists) << kDepthSeries[s].name << " of sublayer " << place;
      if (!exists) continue;
      EXPECT_TRUE(std::isfinite(value)) << kDepthSeries[s].name << " of sublayer " << place;
    }
    const bool combines = GetParam() == ResidualMethod::kDlclPre;
    if (!starts && (combines || GetParam() == ResidualMethod::kPreLn)) {
      const bool reads_stream = !combines || sublayer.kind != SublayerKind::kSelfAttention;
      EXPECT_EQ(depth[DepthSeries::kNormInputGradient][place] == depth[DepthSeries::kOutputGradient][place - 1],
                reads_stream)
          << "sublayer " << place;
    }
    ++place;
  }
  EXPECT_GT(depth.model_update.value(), 0);
}

INSTANTIATE_TEST_SUITE_P(Methods, DepthRecorderTest,
                         ::testing::Values(ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kB2t,
                                           ResidualMethod::kReZero, ResidualMethod::kNormFormer,
                                           ResidualMethod::kDlclPre, ResidualMethod::kResidualDual,
                                           ResidualMethod::kMhc, ResidualMethod::kAttnRes),
                         [](const auto& info) { return ResidualMethodName(info.param); });

TEST(DepthRecorder, ReplicasRecordTheSameUpToTheOrderOfSums) {
  RunSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  spec.steps = 1;
  const RunOutcome one = TrainRecording(spec);
  spec.ranks = 4;
  spec.pipeline.replicas = 2;
  for (const bool sharded : {false, true}) {
    spec.pipeline.shard_optimizer_state = sharded;
    const RunOutcome two = TrainRecording(spec);
    for (size_t s = 0; s < kDepthSeriesCount; ++s) {
      const std::vector<float>&a = one.depth[0].series[s], &b = two.depth[0].series[s];
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << kDepthSeries[s].name << " " << i;
        if (std::isnan(a[i])) continue;
        EXPECT_NEAR(a[i], b[i], 2e-3 * std::abs(a[i])) << kDepthSeries[s].name << " " << i;
      }
    }
  }
}

// ‖ΔW‖/‖W‖ of the third update, from the weights of runs of two and of three steps.
TEST(DepthRecorder, UpdateRatioIsThatOfTheWeights) {
  RunSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  spec.model.d_ff = 160;  // a feed-forward's weights are more than the 4,096 elements that are measured at a time
  const RunOutcome after = TrainRecording(spec);
  spec.steps = 2;
  const RunOutcome before = Train(spec, SmallCorpus());
  const ModelPlan plan = ModelPlan::Make(spec.model);
  std::vector<double> change(plan.sublayers.size()), weight(plan.sublayers.size());
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    for (size_t i = 0; i < after.weights[p].size(); ++i) {
      const double w = after.weights[p][i], d = w - before.weights[p][i];
      change[plan.parameters[p].sublayer] += d * d;
      weight[plan.parameters[p].sublayer] += w * w;
    }
  }
  size_t place = 0;
  for (size_t s = 0; s < plan.sublayers.size(); ++s) {
    if (plan.sublayers[s].layer < 0) continue;
    const double expected = std::sqrt(change[s] / weight[s]);
    EXPECT_NEAR(after.depth.back()[DepthSeries::kUpdateRatio][place++], expected, 1e-5 * expected);
  }
}

// A run that stops and goes on records what an undisturbed one does: F(x, θ_0) outlives the process.
class TrainerRun {
 public:
  TrainerRun() {
    options_.seed = 5;
    options_.run_directory = directory_.path();
    options_.model = SmallModel(ResidualMethod::kDeepNorm, {.d_model = 16, .vocabulary = kVocabulary});
    options_.batch = {.micro_batches = 2, .source_tokens = 48, .target_tokens = 48};
    options_.rate.warmup_updates = 2;
  }

  std::vector<DepthMetrics> To(int64_t steps) {
    struct Recorder : MetricsSink {
      void OnDepth(const DepthMetrics& metrics) override { records.push_back(metrics); }
      void OnText(int64_t step, TextKind kind, std::string_view text) override {
        if (kind == TextKind::kWarning) warnings.emplace_back(text);
      }
      void OnStep(const StepMetrics& metrics) override { gradients = metrics.depth_gradient_norms; }
      std::vector<DepthMetrics> records;
      std::vector<std::string> warnings;
      std::vector<float> gradients;
    } recorder;
    options_.stop.steps = steps;
    InProcessWorld world(2);
    const absl::Status status = world.Run([&](Communicator& communicator) {
      const TrainingSurroundings surroundings{
          .communicator = communicator, .stream = Stream::Cpu(1), .train = corpus_, .sink = recorder};
      return WithTrainer(options_, surroundings, [](Trainer& trainer) -> absl::Status {
        HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
        return trainer.Run().status();
      });
    });
    EXPECT_TRUE(status.ok()) << status;
    warnings = recorder.warnings;
    gradients = recorder.gradients;
    return recorder.records;
  }

  // Weights do not change.
  void StandStill() { options_.rate.peak = options_.rate.warmup_initial_rate = 0; }
  std::string probe_file() const { return JoinPath(directory_.path(), kDepthProbeName); }
  std::vector<std::string> warnings;
  std::vector<float> gradients;  // of the last step

 private:
  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = SmallCorpus();
};

// Replaces the first output by zeros, rightly signed, and, unless it is empty, the metadata called `key`.
void RewriteProbe(const std::string& path, const std::string& key) {
  std::vector<SafetensorsTensor> tensors;
  SafetensorsMetadata metadata;
  {
    const auto reader = SafetensorsReader::Open(path);
    tensors = reader->tensors();
    metadata = reader->metadata();
  }
  const std::string zeros(static_cast<size_t>(tensors[0].bytes()), '\0');
  metadata["crc32c"] = absl::StrCat(absl::Hex(Crc32c(zeros.data(), zeros.size()), absl::kZeroPad8));
  if (!key.empty()) metadata[key] = "0";
  ASSERT_TRUE(RemoveTree(path).ok());
  auto writer = SafetensorsWriter::Create(path, tensors, metadata);
  ASSERT_TRUE(writer->Append(zeros).ok());
  ASSERT_TRUE(writer->Finish().ok());
}

TEST(DepthRecorder, GoesOnAfterAResumeAsIfNothingHadHappened) {
  TrainerRun whole, resumed;
  const std::vector<DepthMetrics> all = whole.To(6);
  std::vector<DepthMetrics> pieces = resumed.To(3);
  for (const DepthMetrics& record : resumed.To(6)) pieces.push_back(record);
  EXPECT_EQ(FirstDifference(all, pieces), "");
  EXPECT_TRUE(resumed.warnings.empty());
  EXPECT_TRUE(pieces.back().model_update.has_value());
}

TEST(DepthRecorder, WhatStandsStillHasNotChanged) {
  TrainerRun run;
  run.StandStill();
  const DepthMetrics record = run.To(1).back();
  EXPECT_EQ(record.model_update, 0.0);
  for (const float ratio : record[DepthSeries::kUpdateRatio]) EXPECT_EQ(ratio, 0.0f);
  EXPECT_EQ(record[DepthSeries::kParameterGradient], run.gradients);
  // Outputs of LayerNorms whose weights are still 1 and 0, of branches that are small beside the stream.
  for (const float output : record[DepthSeries::kOutput]) EXPECT_NEAR(output, 1, 1e-3);
  for (const float cosine : record[DepthSeries::kSimilarity]) {
    EXPECT_GT(cosine, 0);
    EXPECT_LE(cosine, 1 + 1e-5);
  }
  for (const float share : record[DepthSeries::kActive]) {
    EXPECT_FALSE(share > 1);
  }
}

// From an output of 0 it is the output's own: rows of a LayerNorm, of norm √16.
TEST(DepthRecorder, TheModelsChangeIsTheRootMeanSquareOverTheRows) {
  TrainerRun run;
  run.StandStill();
  run.To(1);
  RewriteProbe(run.probe_file(), "");
  const std::vector<DepthMetrics> records = run.To(2);
  EXPECT_TRUE(run.warnings.empty());
  ASSERT_EQ(records.size(), 1u);
  EXPECT_NEAR(records[0].model_update.value(), 4, 1e-3);
}

TEST(DepthRecorder, TheFirstOutputOfAnotherModelOrProbeIsNotComparedWith) {
  for (const char* key : {"model", "probe"}) {
    TrainerRun run;
    run.To(1);
    RewriteProbe(run.probe_file(), key);
    const std::vector<DepthMetrics> records = run.To(2);
    ASSERT_EQ(run.warnings.size(), 1u) << key;
    EXPECT_NE(run.warnings[0].find("is of another model or another probe"), std::string::npos) << run.warnings[0];
    EXPECT_FALSE(records.back().model_update.has_value()) << key;
  }
}

// A directory has its name.
TEST(DepthRecorder, AFirstOutputThatCannotBeKeptIsMissedOnlyAfterAResume) {
  TrainerRun run;
  ASSERT_TRUE(MakeDirectories(run.probe_file()).ok());
  const std::vector<DepthMetrics> records = run.To(2);
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_NE(run.warnings[0].find("will not be recorded after a resume: "), std::string::npos) << run.warnings[0];
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records.back().model_update.has_value());
}

TEST(DepthRecorder, WithoutTheFirstOutputOnlyTheModelsChangeGoesUnrecorded) {
  TrainerRun run;
  run.To(2);
  ASSERT_TRUE(RemoveTree(run.probe_file()).ok());
  const std::vector<DepthMetrics> records = run.To(4);
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_NE(run.warnings[0].find(kDepthProbeName), std::string::npos) << run.warnings[0];
  ASSERT_EQ(records.size(), 2u);
  EXPECT_FALSE(records[0].model_update.has_value());
  EXPECT_FALSE(records[0][DepthSeries::kOutput].empty());
}

// A value that is off by one bit may be off by 37 orders of magnitude.
TEST(DepthRecorder, ADamagedFirstOutputIsNotComparedWith) {
  TrainerRun run;
  run.To(2);
  const size_t bytes = Contents(run.probe_file()).size();
  const auto reader = SafetensorsReader::Open(run.probe_file());
  const auto data = static_cast<size_t>(reader->header_bytes());
  int64_t steps = 2;
  for (const size_t byte : {size_t{3}, size_t{20}, data, data + 403, (data + bytes) / 2, bytes - 1}) {
    FlipBit(run.probe_file(), byte, 6);
    const std::vector<DepthMetrics> records = run.To(++steps);
    ASSERT_EQ(run.warnings.size(), 1u) << byte;
    EXPECT_NE(run.warnings[0].find(kDepthProbeName), std::string::npos) << run.warnings[0];
    for (const DepthMetrics& record : records) EXPECT_FALSE(record.model_update.has_value()) << byte;
    FlipBit(run.probe_file(), byte, 6);
  }
}

}  // namespace
}  // namespace hadal::testing
