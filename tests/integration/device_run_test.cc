// Whole training runs on a device beside the same on the CPU: losses alike to fp32, the same bits for every layout on
// the device, and checkpoints that go from one kind of device to the other.
#include <cmath>
#include <tuple>

#include "gmock/gmock.h"
#include "tests/integration/pipeline_run.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

// Relative, of a loss: sums run in another order on a device, and a few updates carry the difference on.
constexpr double kTolerance = 2e-5;

RunSpec OnDevice(RunSpec spec) {
  spec.make_device = [](int rank) { return MakeTestDevice(7 + rank); };
  return spec;
}

void ExpectAlike(const std::vector<double>& device, const std::vector<double>& cpu, const std::string& what) {
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(device[i] / cpu[i], 1, kTolerance) << what << ", entry " << i;
}

// Trains on a device, as on the CPU; what the device gives.
RunOutcome TrainAsOnTheCpu(const RunSpec& spec, const Corpus& corpus, const std::string& what) {
  const RunOutcome cpu = Train(spec, corpus), device = Train(OnDevice(spec), corpus);
  ExpectAlike(device.loss, cpu.loss, what + ", loss");
  ExpectAlike(device.gradient_norm, cpu.gradient_norm, what + ", gradient norm");
  ExpectAlike(device.validation_loss, cpu.validation_loss, what + ", validation loss");
  EXPECT_EQ(device.translations, cpu.translations);
  return device;
}

TEST(DeviceRunTest, LossesAreThoseOfTheCpu) {
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm,     ResidualMethod::kBranchNorm,  ResidualMethod::kPreLn,
        ResidualMethod::kPostLn,       ResidualMethod::kB2t,         ResidualMethod::kSubLn,
        ResidualMethod::kTFixup,       ResidualMethod::kReZero,      ResidualMethod::kAdmin,
        ResidualMethod::kNormFormer,   ResidualMethod::kRFixup,      ResidualMethod::kDlclPre,
        ResidualMethod::kDlclPost,     ResidualMethod::kKeel,        ResidualMethod::kPeriLn,
        ResidualMethod::kLnScaling,    ResidualMethod::kMixLn,       ResidualMethod::kCompleteP,
        ResidualMethod::kResidualDual, ResidualMethod::kMhc,         ResidualMethod::kMhcLite,
        ResidualMethod::kAttnRes,      ResidualMethod::kAttnResDelta}) {
    RunSpec spec = SmallRun(method);
    spec.validate_every_step = method == ResidualMethod::kDeepNorm || method == ResidualMethod::kMhc;
    TrainAsOnTheCpu(spec, corpus, std::string(ResidualMethodName(method)));
  }
}

// In the other layouts the arena's regions lie apart (RunSpec::poison): what a kernel reads outside of its own is NaN
// and no index, and what it writes there is found.
TEST(DeviceRunTest, NoLayoutChangesABit) {
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kRFixup, ResidualMethod::kDlclPre,
                                      ResidualMethod::kDlclPost, ResidualMethod::kMhc, ResidualMethod::kAttnRes}) {
    const RunSpec spec = OnDevice(SmallRun(method));
    const RunOutcome whole = Train(spec, corpus);
    for (const int ranks : {1, 2}) {
      for (const int recompute_every : {0, 3}) {
        if (ranks == 1 && recompute_every == 0) continue;
        if (method != ResidualMethod::kDeepNorm && (ranks == 1 || recompute_every == 0)) continue;  // both at once
        RunSpec other = spec;
        other.ranks = ranks;
        other.pipeline.recompute_every = recompute_every;
        other.poison = true;
        EXPECT_EQ(FirstDifference(whole, Train(other, corpus)), "")
            << ResidualMethodName(method) << ", " << ranks << " stages, recompute_every " << recompute_every;
      }
    }
  }
}

// Micro-batches of several sizes, often enough for each that graphs are made and launched again.
RunSpec ManyMicroBatches(ResidualMethod method) {
  RunSpec spec = SmallRun(method);
  spec.batch = {.micro_batches = 4, .source_tokens = 16, .target_tokens = 20};
  spec.pipeline.bucket_rows = 8;
  spec.steps = 3;
  return spec;
}

TEST(DeviceRunTest, GraphsChangeNoBit) {
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method : {ResidualMethod::kBranchNorm, ResidualMethod::kReZero, ResidualMethod::kMhc}) {
    RunSpec spec = OnDevice(ManyMicroBatches(method));
    if (method == ResidualMethod::kMhc) {
      spec.model.branch_growth = BranchGrowth::kLinear;
      spec.model.branch_growth_updates = 4;
    }
    spec.pipeline.graphs = GraphMode::kOff;
    spec.validate_every_step = method == ResidualMethod::kReZero;
    const RunOutcome eager = Train(spec, corpus);
    spec.pipeline.graphs = GraphMode::kAuto;
    const RunOutcome graphs = Train(spec, corpus);
    EXPECT_EQ(FirstDifference(eager, graphs), "") << ResidualMethodName(method);
    EXPECT_EQ(eager.validation_loss, graphs.validation_loss);
    EXPECT_LT(graphs.launches.back(), 0.75 * eager.launches.back()) << "no graph was launched";
  }
}

TEST(DeviceRunTest, GraphsChangeNoBitOfAnyLayout) {
  const Corpus corpus = SmallCorpus();
  RunSpec spec = OnDevice(ManyMicroBatches(ResidualMethod::kDeepNorm));
  spec.pipeline.graphs = GraphMode::kOff;
  const RunOutcome whole = Train(spec, corpus);
  spec.pipeline.graphs = GraphMode::kAuto;
  spec.pipeline.recompute_every = 3;
  for (const int ranks : {1, 2}) {
    spec.ranks = ranks;
    EXPECT_EQ(FirstDifference(whole, Train(spec, corpus)), "") << ranks << " stages, recomputation";
  }
}

// A half of a backward has a graph for each pair of slots, and with replicas a step's last weight half several.
TEST(DeviceRunTest, GraphsOfHalvesChangeNoBit) {
  struct Layout {
    ScheduleKind schedule = ScheduleKind::kZbH1;
    int chunks = 1, replicas = 1;
  };
  const Corpus corpus = SmallCorpus();
  RunOutcome whole[3];  // by replicas
  for (const Layout& layout :
       {Layout{}, Layout{ScheduleKind::kInterleavedZb, 2}, Layout{ScheduleKind::k1F1BSplit, 1, 2}}) {
    RunSpec spec = OnDevice(ManyMicroBatches(ResidualMethod::kDeepNorm));
    spec.ranks = 2 * layout.replicas;
    spec.pipeline.replicas = layout.replicas;
    RunOutcome& expected = whole[layout.replicas];
    if (expected.loss.empty()) expected = Train(spec, corpus);
    spec.pipeline.schedule = layout.schedule;
    spec.pipeline.chunks = layout.chunks;
    EXPECT_EQ(FirstDifference(expected, Train(spec, corpus)), "") << ToString(layout.schedule);
  }
}

// Whole backwards and halves; the recomputed tensors of segments have two places in turn.
TEST(DeviceRunTest, AQueueForGradientsOfWeightsChangesNoBit) {
  const Corpus corpus = SmallCorpus();
  RunSpec spec = OnDevice(ManyMicroBatches(ResidualMethod::kDeepNorm));
  const RunOutcome without = Train(spec, corpus);
  spec.pipeline.overlap_weight_gradients = true;
  spec.ranks = 2;
  for (const auto& [schedule, recompute_every, graphs] :
       {std::tuple(ScheduleKind::k1F1B, 3, GraphMode::kOff), std::tuple(ScheduleKind::k1F1B, 3, GraphMode::kAuto),
        std::tuple(ScheduleKind::kZbH1, 0, GraphMode::kAuto)}) {
    spec.pipeline.schedule = schedule, spec.pipeline.recompute_every = recompute_every, spec.pipeline.graphs = graphs;
    EXPECT_EQ(FirstDifference(without, Train(spec, corpus)), "")
        << ToString(schedule) << ", recompute_every " << recompute_every;
  }
}

void ExpectAlike(const std::vector<DepthMetrics>& device, const std::vector<DepthMetrics>& cpu) {
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t step = 0; step < cpu.size(); ++step) {
    EXPECT_NEAR(device[step].model_update.value(), cpu[step].model_update.value(), 1e-2 * *cpu[step].model_update);
    for (size_t s = 0; s < kDepthSeriesCount; ++s) {
      const std::vector<float>&on_device = device[step].series[s], &expected = cpu[step].series[s];
      ASSERT_EQ(on_device.size(), expected.size()) << kDepthSeries[s].name;
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(std::isnan(on_device[i]), std::isnan(expected[i])) << kDepthSeries[s].name << " " << i;
        if (std::isnan(expected[i])) continue;
        EXPECT_NEAR(on_device[i], expected[i], 1e-2 * std::abs(expected[i]) + 1e-4)
            << kDepthSeries[s].name << " of step " << step << ", sublayer " << i;
      }
    }
  }
}

TEST(DeviceRunTest, InstrumentsLookAtWhatIsLaunchedOneByOne) {
  const TemporaryDirectory directory;
  const Corpus corpus = SmallCorpus();
  RunSpec spec = OnDevice(ManyMicroBatches(ResidualMethod::kDeepNorm));
  spec.batch.micro_batches = 2;
  const RunOutcome graphs = Train(spec, corpus);
  spec.depth_directory = directory / "depth";
  std::filesystem::create_directories(spec.depth_directory);
  const RunOutcome recorded = Train(spec, corpus);
  EXPECT_EQ(FirstDifference(graphs, recorded), "");
  EXPECT_EQ(recorded.depth.size(), 3u);
  EXPECT_GT(recorded.launches.back(), 2 * graphs.launches.back());
  spec.make_device = nullptr;
  ExpectAlike(recorded.depth, Train(spec, corpus).depth);
}

TEST(DeviceRunTest, AMicroBatchIsTwoLaunches) {
  // Sentences of one token: every micro-batch has the same shape.
  const Corpus corpus = RandomCorpus(200, 1, kSmallVocabulary, 5);
  RunSpec spec = OnDevice(SmallRun(ResidualMethod::kDeepNorm));
  spec.model.encoder_layers = spec.model.decoder_layers = 1;
  ApplyResidualMethod(ResidualMethod::kDeepNorm, spec.model);
  spec.batch.source_tokens = spec.batch.target_tokens = 8;
  const auto launches = [&](GraphMode graphs, int micro_batches) {
    spec.pipeline.graphs = graphs;
    spec.batch.micro_batches = micro_batches;
    return Train(spec, corpus).launches.back();
  };
  // Its forward and its backward.
  EXPECT_EQ(launches(GraphMode::kAuto, 3) - launches(GraphMode::kAuto, 2), 2);
  EXPECT_GT(launches(GraphMode::kOff, 3) - launches(GraphMode::kOff, 2), 50);
}

// With replicas a step's last backward is launched in parts, so that gradients leave as they become complete: no more
// graphs than parts, and the bits of launching one by one.
TEST(DeviceRunTest, ALastBackwardWithReplicasIsAFewGraphs) {
  const Corpus corpus = RandomCorpus(200, 1, kSmallVocabulary, 5);
  RunSpec spec = OnDevice(SmallRun(ResidualMethod::kDeepNorm));
  spec.ranks = spec.pipeline.replicas = 2;
  spec.batch = {.micro_batches = 2, .source_tokens = 8, .target_tokens = 8};
  spec.pipeline.graphs = GraphMode::kOff;
  const RunOutcome eager = Train(spec, corpus);
  spec.pipeline.graphs = GraphMode::kAuto;
  const RunOutcome graphs = Train(spec, corpus);
  EXPECT_EQ(FirstDifference(eager, graphs), "");
  EXPECT_LT(graphs.launches.back(), 0.5 * eager.launches.back());
}

// The optimizer is one launch a run of slices that lie back to back, and norms two a thousand slices: no number that
// depth makes matter. In bf16 matrices lie apart from biases and norms.
TEST(DeviceRunTest, AStepsTailIsTheSameFewLaunchesAtAnyDepth) {
  const Corpus corpus = RandomCorpus(200, 1, kSmallVocabulary, 5);
  const auto launches = [&](int layers, Storage storage) {
    RunSpec spec = OnDevice(SmallRun(ResidualMethod::kDeepNorm));
    spec.compute_storage = storage;
    spec.model.encoder_layers = spec.model.decoder_layers = layers;
    ApplyResidualMethod(ResidualMethod::kDeepNorm, spec.model);
    spec.batch.source_tokens = spec.batch.target_tokens = 8;
    return Train(spec, corpus).launches.back();
  };
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    EXPECT_EQ(launches(1, storage), launches(3, storage)) << (storage == Storage::kBFloat16 ? "bf16" : "fp32");
  }
}

// And the same bits on two stages with recomputation.
void ExpectAsOnTheCpuAndOnTwoStages(const RunSpec& spec) {
  const Corpus corpus = RandomCorpusFor(spec.model, 60, 9, 5);
  const RunOutcome device = TrainAsOnTheCpu(spec, corpus, "one stage");
  RunSpec other = OnDevice(spec);
  other.ranks = 2;
  other.pipeline.recompute_every = 3;
  other.poison = true;
  EXPECT_EQ(FirstDifference(device, Train(other, corpus)), "");
}

TEST(DeviceRunTest, OtherBlocksTrainAsOnTheCpu) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDeepNorm, ResidualMethod::kSubLn}) {
    RunSpec spec = SmallRun(method);
    spec.model.block = kModernBlock;
    if (method == ResidualMethod::kDeepNorm)
      spec.model.block = {
          .activation = Activation::kGelu, .biases = Biases::kQkv, .positions = Positions::kLearned, .kv_heads = 1};
    if (method == ResidualMethod::kSubLn) spec.model.block.positions = Positions::kNone;
    ExpectAsOnTheCpuAndOnTwoStages(spec);
  }
}

TEST(DeviceRunTest, LanguageModelsTrainToo) {
  RunSpec spec = SmallRun(ResidualMethod::kPreLn);
  spec.model.encoder_layers = spec.model.source_vocabulary = 0;
  ApplyResidualMethod(ResidualMethod::kPreLn, spec.model);
  spec.seed = (uint64_t{1} << 32) + 11;  // of two words on a device
  ExpectAsOnTheCpuAndOnTwoStages(spec);
}

// Rows are gathered and their gradients scattered; a micro-batch without a masked token has none.
TEST(DeviceRunTest, EncodersAloneTrainToo) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDeepNorm, ResidualMethod::kMhc}) {
    RunSpec spec = SmallRun(method);
    spec.model.decoder_layers = spec.model.source_vocabulary = 0;
    ApplyResidualMethod(method, spec.model);
    spec.model.block = kBertBlock;
    spec.validate_every_step = true;
    ExpectAsOnTheCpuAndOnTwoStages(spec);
  }
}

// Frames reach the device as SpecAugment leaves them, one by one and in graphs, in training, validation and
// translation.
TEST(DeviceRunTest, SpeechTrainsAsOnTheCpu) {
  RunSpec spec = SmallSpeechRun(ResidualMethod::kDeepNorm);
  const Corpus corpus = RandomCorpusFor(spec.model, 60, 9, 5);
  spec.batch = {.micro_batches = 4, .source_tokens = 16, .target_tokens = 20};
  spec.pipeline.bucket_rows = 8;
  spec.pipeline.decoder = {.beam = {.beam = 2, .max_length_b = 4}, .sentences = 4};
  spec.steps = 3;
  spec.validate_every_step = true;
  const RunOutcome device = TrainAsOnTheCpu(spec, corpus, "speech");
  RunSpec other = OnDevice(spec);
  spec.spec_augment = {};
  EXPECT_GT(std::abs(Train(spec, corpus).loss[0] / device.loss[0] - 1), 10 * kTolerance) << "nothing was masked";
  other.pipeline.graphs = GraphMode::kOff;
  other.ranks = 2;
  other.poison = true;
  const RunOutcome eager = Train(other, corpus);
  EXPECT_EQ(FirstDifference(device, eager), "");
  EXPECT_LT(device.launches.back(), 0.75 * eager.launches.back()) << "no graph was launched";
}

class DeviceTrainerTest : public SmallTrainerTest {
 protected:
  DeviceTrainerTest() : SmallTrainerTest(Storage::kFloat32) {}
};

TEST_F(DeviceTrainerTest, CheckpointsGoFromOneKindOfDeviceToTheOther) {
  const std::unique_ptr<Device> device = MakeTestDevice(3);
  TrainerRecord unbroken;
  ASSERT_TRUE(Train(nullptr, 4, "", unbroken).ok());
  EXPECT_EQ(unbroken.depth_records, 4);
  options_.checkpoint.every_steps = 1;  // saved beside the steps
  for (const bool device_first : {true, false}) {
    Device *const first = device_first ? device.get() : nullptr, *const second = device_first ? nullptr : device.get();
    const TrainerRecord record = TrainInTwo(first, second);
    EXPECT_EQ(record.depth_records, 4);
    ExpectAlike(record.losses, unbroken.losses, device_first ? "device, then CPU" : "CPU, then device");
  }
}

// Beside training or at the end of a run: the same bytes, with a buffer for nothing and for everything.
TEST_F(DeviceTrainerTest, CheckpointsWrittenBesideStepsAreThoseOfTheStep) {
  const std::unique_ptr<Device> device = MakeTestDevice(3);
  constexpr int kSteps = 3;
  const auto file = [&](int step) {
    return Contents(directory_ / absl::StrCat("first/checkpoints/step_0000000", step, "/rank_00000.safetensors"));
  };
  TrainerRecord record;
  std::vector<std::string> at_end;
  for (int step = 1; step < kSteps; ++step) {
    ASSERT_TRUE(Train(device.get(), step, "", record).ok());
    at_end.push_back(file(step));
    std::filesystem::remove_all(directory_ / "first");
  }
  options_.checkpoint.every_steps = 1;
  for (const int64_t buffer_bytes : {int64_t{0}, int64_t{1} << 30}) {
    options_.pipeline.save_buffer_bytes = buffer_bytes;
    ASSERT_TRUE(Train(device.get(), kSteps, "", record).ok());
    for (int step = 1; step < kSteps; ++step) {
      EXPECT_TRUE(file(step) == at_end[step - 1]) << "of step " << step << ", a buffer of " << buffer_bytes;
    }
    std::filesystem::remove_all(directory_ / "first");
  }
}

TEST_F(DeviceTrainerTest, WhatHasNoKernelIsRefusedByName) {
  const std::unique_ptr<Device> device = MakeTestDevice(3);
  const auto refusal = [&] {
    TrainerRecord record;
    const absl::Status status = Train(device.get(), 1, "", record).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return std::string(status.message());
  };
  options_.model.d_model = 4096;
  EXPECT_THAT(refusal(), HasSubstr("4096 columns"));
}

}  // namespace
}  // namespace hadal::testing
