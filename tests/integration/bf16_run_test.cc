// Whole training runs in bf16 on a device: losses follow fp32's within a stated band, every layout gives the same bits,
// resuming changes none, and checkpoints go to and from a CPU that trains in fp32.
#include <cmath>

#include "gmock/gmock.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/in_process_communicator.h"
#include "tests/integration/pipeline_run.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/test_device.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

// Relative, of a loss after a step or two and after resuming. Measured: at most 2.6e-3 (NormFormer's in validation).
constexpr double kBand = 5e-3;

RunSpec InBf16(RunSpec spec) {
  spec.compute_storage = Storage::kBFloat16;
  spec.make_device = [](int rank) { return MakeTestDevice(7 + rank); };
  return spec;
}

void ExpectInBand(const std::vector<double>& bf16, const std::vector<double>& fp32, double band,
                  const std::string& what) {
  ASSERT_EQ(bf16.size(), fp32.size());
  for (size_t i = 0; i < fp32.size(); ++i) EXPECT_NEAR(bf16[i] / fp32[i], 1, band) << what << ", step " << i;
}

// Twelve steps of post-norm, pre-norm and no-norm streams, learned scalars and combinations of layers. Measured: at
// most 1.3e-3 (R-Fixup's). Without weights in fp32 that gather small updates it would be 9.1e-3 (ReZero), and beyond
// the band for five of the six.
TEST(Bf16RunTest, TheLossCurveFollowsFp32) {
  constexpr double kCurveBand = 2.5e-3;
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kPostLn, ResidualMethod::kPreLn,
                                      ResidualMethod::kReZero, ResidualMethod::kRFixup, ResidualMethod::kDlclPost}) {
    RunSpec spec = SmallRun(method);
    spec.batch.micro_batches = 1;
    spec.steps = 12;
    const RunOutcome fp32 = Train(spec, corpus), bf16 = Train(InBf16(spec), corpus);
    ExpectInBand(bf16.loss, fp32.loss, kCurveBand, std::string(ResidualMethodName(method)));
    EXPECT_NE(bf16.loss, fp32.loss) << "nothing was rounded";
  }
}

TEST(Bf16RunTest, TheOtherMethodsTrain) {
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method :
       {ResidualMethod::kBranchNorm, ResidualMethod::kB2t, ResidualMethod::kSubLn, ResidualMethod::kTFixup,
        ResidualMethod::kAdmin, ResidualMethod::kNormFormer, ResidualMethod::kDlclPre, ResidualMethod::kKeel,
        ResidualMethod::kResidualDual, ResidualMethod::kMhc}) {
    RunSpec spec = SmallRun(method);
    spec.validate_every_step = true;
    const RunOutcome fp32 = Train(spec, corpus), bf16 = Train(InBf16(spec), corpus);
    const std::string name(ResidualMethodName(method));
    ExpectInBand(bf16.loss, fp32.loss, kBand, name);
    ExpectInBand(bf16.validation_loss, fp32.validation_loss, kBand, name + ", validation");
  }
}

// Another block; stacks whose residual streams are stored as their own norms let them be; language models; speech.
TEST(Bf16RunTest, OtherModelsTrain) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDeepNorm}) {
    const bool pre_norm = method == ResidualMethod::kPreLn;
    RunSpec block = SmallRun(method), stacks = SmallRun(ResidualMethod::kPostLn), language = SmallRun(method);
    block.model.block = kModernBlock;
    block.model.block.first_norm = !pre_norm;
    (pre_norm ? stacks.model.encoder : stacks.model.decoder).norm = NormPlacement::kPre;
    language.model.encoder_layers = language.model.source_vocabulary = 0;
    ApplyResidualMethod(method, language.model);
    for (RunSpec spec : {block, stacks, language, SmallSpeechRun(method)}) {
      const Corpus corpus = RandomCorpusFor(spec.model, 60, 9, 5);
      const RunOutcome bf16 = Train(InBf16(spec), corpus);
      ExpectInBand(bf16.loss, Train(spec, corpus).loss, kBand, std::string(ResidualMethodName(method)));
      spec.ranks = 3;
      EXPECT_EQ(FirstDifference(bf16, Train(InBf16(spec), corpus)), "");
    }
  }
}

TEST(Bf16RunTest, NoLayoutChangesABit) {
  const Corpus corpus = SmallCorpus();
  struct Layout {
    int ranks, recompute_every;
    std::vector<int32_t> split;
  };
  // Cut anywhere; in front of the target embedding, where the encoder's output crosses, and behind it; in front of the
  // head.
  const Layout layouts[] = {{1, 3, {}}, {2, 0, {5}}, {2, 2, {6}}, {2, 0, {12}}, {4, 3, {}}};
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kReZero, ResidualMethod::kRFixup,
        ResidualMethod::kDlclPre, ResidualMethod::kDlclPost, ResidualMethod::kMhc}) {
    RunSpec spec = InBf16(SmallRun(method, 16));
    if (method == ResidualMethod::kDeepNorm) spec.model.activation_dropout = 0;  // the products keep the ReLU's mask
    const RunOutcome whole = Train(spec, corpus);
    for (const Layout& layout : layouts) {
      if (method != ResidualMethod::kDeepNorm && layout.recompute_every != 2) continue;  // both at once
      RunSpec other = spec;
      other.ranks = layout.ranks;
      other.pipeline.recompute_every = layout.recompute_every;
      other.pipeline.split = layout.split;
      other.poison = true;  // with regions that lie apart, as in device_run_test
      EXPECT_EQ(FirstDifference(whole, Train(other, corpus)), "")
          << ResidualMethodName(method) << ", " << layout.ranks << " stages, recompute_every "
          << layout.recompute_every;
    }
  }
}

// 2 bytes of rounded weight where products read it, 4 of weight, 4 of gradient, 8 of moments; and what the device gives
// is what the plan says. With replicas: bf16_replicas_test.
TEST(Bf16RunTest, AParameterTakes18Bytes) {
  RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  spec.model.sharing = EmbeddingSharing::kNone;
  ModelPlan plan = ModelPlan::Make(spec.model);
  plan.compute_storage = Storage::kBFloat16;
  const absl::StatusOr<PipelineLayout> pipeline = MakePipelineLayout(plan, spec.batch, spec.pipeline, 1);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const std::unique_ptr<Device> device = MakeTestDevice(1);
  const Stream stream = Stream::On(*device, 1);
  const ArenaLayout layout = RankParts(plan, *pipeline, 0, stream, Purpose::kTraining).layout;
  int64_t state = 0;
  for (const ArenaLayout::Category& category : layout.categories()) {
    if (category.name == "weights" || category.name == "gradients" || category.name == "optimizer") {
      state += category.bytes;
    }
  }
  const int64_t position_tables = 2 * int64_t{4} * spec.model.max_positions * spec.model.d_model;
  double expected = 0;
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
    expected += (plan.ReadByProductsAlone(p) ? 18.0 : 16.0) * static_cast<double>(plan.parameters[p].elements());
  }
  constexpr int64_t kRegions = 7;
  EXPECT_NEAR(static_cast<double>(state - position_tables), expected, kRegions * ArenaLayout::kAlignmentBytes);

  InProcessWorld world(1);
  const auto create = [&] { return TrainingEngine(plan, *pipeline, world.communicator(0), stream); };
  ASSERT_TRUE(create().ok()) << "what a first use takes for good, a kernel's code, is not the engine's";
  const int64_t free = device->FreeBytes();
  const absl::StatusOr<std::unique_ptr<Engine>> engine = create();
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->arena_bytes(), layout.total_bytes());
  EXPECT_NEAR(free - device->FreeBytes(), layout.device_bytes(), 2 << 20) << "a driver gives whole pages";
}

class Bf16TrainerTest : public SmallTrainerTest {
 protected:
  Bf16TrainerTest() : SmallTrainerTest(Storage::kBFloat16) {}
};

TEST_F(Bf16TrainerTest, CheckpointsAreThoseOfFp32) {
  const std::unique_ptr<Device> device = MakeTestDevice(3);
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kRFixup, ResidualMethod::kDlclPre, ResidualMethod::kDlclPost}) {
    SCOPED_TRACE(ResidualMethodName(method));
    ApplyResidualMethod(method, options_.model);
    TrainerRecord unbroken;
    ASSERT_TRUE(Train(nullptr, 4, "", unbroken).ok());
    ExpectInBand(TrainInTwo(device.get(), nullptr).losses, unbroken.losses, kBand, "bf16, then fp32");
    ExpectInBand(TrainInTwo(nullptr, device.get()).losses, unbroken.losses, kBand, "fp32, then bf16");
  }
}

TEST(Bf16RunTest, ACpuRefusesIt) {
  RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  ModelPlan plan = ModelPlan::Make(spec.model);
  plan.compute_storage = Storage::kBFloat16;
  const absl::StatusOr<PipelineLayout> pipeline = MakePipelineLayout(plan, spec.batch, spec.pipeline, 1);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  InProcessWorld world(1);
  const absl::Status status = TrainingEngine(plan, *pipeline, world.communicator(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bf16 needs a GPU"));
}

// Beam search at validations, in bf16 by the weights that products read, changes no bit of training, and is the same
// for every layout.
TEST(Bf16RunTest, ValidationBleuChangesNoBitOfTraining) {
  const Corpus corpus = SmallCorpus();
  RunSpec spec = InBf16(SmallRun(ResidualMethod::kBranchNorm));
  spec.model.encoder_layers = spec.model.decoder_layers = 1;
  ApplyResidualMethod(ResidualMethod::kBranchNorm, spec.model);
  const RunOutcome reference = Train(spec, corpus);
  spec.pipeline.decoder = {.beam = {.beam = 2, .max_length_b = 4}, .sentences = 4};
  spec.bleu_sentences = 3;
  spec.poison = true;  // the memory that both lie in
  const RunOutcome translating = Train(spec, corpus);
  EXPECT_EQ(FirstDifference(reference, translating), "");
  ASSERT_EQ(translating.translations.size(), 3u);
  spec.ranks = 2;
  const RunOutcome stages = Train(spec, corpus);
  EXPECT_EQ(FirstDifference(reference, stages), "") << "2 stages";
  EXPECT_EQ(stages.translations, translating.translations) << "2 stages";
}

}  // namespace
}  // namespace hadal::testing
