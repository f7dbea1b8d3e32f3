// Admin's profile: the published one at 100 layers, the same bits for every layout, and never of weights that were
// loaded.

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/step_batches.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

using Profile = std::vector<ResidualProfile::Entry>;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kVocabulary = 203;
constexpr BatchOptions kBatch = {.micro_batches = 2, .source_tokens = 160, .target_tokens = 160};

ModelOptions Admin(int layers, int d_model) {
  return SmallModel(ResidualMethod::kAdmin, {.encoder_layers = layers,
                                             .decoder_layers = layers,
                                             .d_model = d_model,
                                             .d_ff = 4 * d_model,
                                             .vocabulary = kVocabulary});
}

// The profile that a run of `ranks` ranks starts with; checks that each rank has the vectors of its sublayers.
Profile ProfileOf(const ModelPlan& plan, const PipelineOptions& options, int ranks) {
  const Corpus corpus = RandomCorpus(100, 24, kVocabulary, 5);
  Profile profile;
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    PrepareComputeThread();
    const Stream stream = Stream::Cpu(1);
    HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                           MakePipelineLayout(plan, kBatch, options, ranks, communicator.rank()));
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, TrainingEngine(plan, pipeline, communicator, stream));
    const ParameterStore& parameters = engine->stage().parameters();
    HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline, parameters, 1, stream, engine->grid().pipeline(), kTimeout));
    HADAL_RETURN_IF_ERROR(engine->DistributeWeights());
    HADAL_ASSIGN_OR_RETURN(SamplingOrder order,
                           SamplingOrder::Create(corpus, {.seed = 1,
                                                          .capacity = {kBatch.source_tokens, kBatch.target_tokens},
                                                          .micro_batches_per_step = kBatch.micro_batches}));
    HADAL_ASSIGN_OR_RETURN(const Profile found,
                           engine->ProfileResidualStream(NextStep(order).micro_batches[0], {.seed = 1}));
    for (const ResidualProfile::Entry& entry : found) {
      if (!parameters.Holds(entry.parameter)) continue;
      const Vector omega = parameters.WeightVector(entry.parameter);
      EXPECT_EQ(omega.size, plan.options.d_model);
      EXPECT_EQ(omega[0], static_cast<float>(entry.omega));
      EXPECT_EQ(omega[omega.size - 1], static_cast<float>(entry.omega));
    }
    if (communicator.rank() == 0) profile = found;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return profile;
}

// The values of Admin's code for 100L-100L, d_model 512, a vocabulary of 32,000 pieces; here the model is narrow.
TEST(AdminProfileTest, HundredLayersWithin15PercentOfThePublishedProfile) {
  constexpr int kLayers = 100;
  const Profile profile = ProfileOf(ModelPlan::Make(Admin(kLayers, 64)), {.recompute_every = 1}, 1);
  ASSERT_EQ(profile.size(), 2u * kLayers + 3 * kLayers);
  struct Row {
    int sublayer;  // from 1
    double published;
  };
  const auto expect = [&](int first, const std::vector<Row>& rows) {
    EXPECT_EQ(profile[first].omega, 1);
    for (const Row& row : rows) {
      EXPECT_NEAR(profile[first + row.sublayer - 1].omega / row.published, 1, 0.15) << "sublayer " << row.sublayer;
    }
  };
  expect(0, {{2, 1.319}, {3, 1.455}, {4, 1.512}, {100, 6.162}, {200, 8.836}});
  expect(2 * kLayers, {{2, 1.343}, {3, 1.480}, {4, 1.610}, {100, 6.493}, {300, 11.250}});
  for (size_t i = 1; i < profile.size(); ++i) {
    if (i == 2 * kLayers) continue;
    EXPECT_GT(profile[i].omega, profile[i - 1].omega) << i;
  }
}

// ω of the second sublayer: its square is r²·Var(x_0) + Var(F(x_0)), and F(x_0) does not depend on r.
TEST(AdminProfileTest, ResidualGainScalesTheStream) {
  const auto square = [](double residual_gain) {
    ModelOptions options = Admin(1, 32);
    options.encoder.residual_gain = residual_gain;
    const Profile profile = ProfileOf(ModelPlan::Make(options), {}, 1);
    return profile.size() < 2 ? 0 : profile[1].omega * profile[1].omega;
  };
  const double one = square(1), two = square(2), three = square(3);
  EXPECT_GT(two, one);
  EXPECT_NEAR((three - one) / (two - one), 8.0 / 3, 1e-4);
}

TEST(AdminProfileTest, NoLayoutChangesABit) {
  const ModelPlan plan = ModelPlan::Make(Admin(4, 32));
  const Profile reference = ProfileOf(plan, {}, 1);
  ASSERT_EQ(reference.size(), 20u);
  struct Layout {
    std::string name;
    PipelineOptions options;
    int ranks;
  };
  const PipelineOptions interleaved{.chunks = 3, .schedule = ScheduleKind::kInterleaved1F1B};
  for (const Layout& layout : std::vector<Layout>{{"3 stages", {}, 3},
                                                  {"2 stages of 3 chunks", interleaved, 2},
                                                  {"1 stage of 3 chunks", interleaved, 1},
                                                  {"2 replicas of 2 stages", {.replicas = 2}, 4}}) {
    const Profile profile = ProfileOf(plan, layout.options, layout.ranks);
    ASSERT_EQ(profile.size(), reference.size()) << layout.name;
    for (size_t i = 0; i < profile.size(); ++i) {
      EXPECT_EQ(profile[i].parameter, reference[i].parameter) << layout.name;
      EXPECT_EQ(profile[i].omega, reference[i].omega) << layout.name << ", sublayer " << i;
    }
  }
}

TEST(AdminProfileTest, OtherMethodsHaveNone) {
  const ModelOptions closed = SmallModel(ResidualMethod::kAdminClosed, {.d_model = 32, .vocabulary = kVocabulary});
  EXPECT_TRUE(ProfileOf(ModelPlan::Make(closed), {}, 2).empty());
}

// Every ω at the end of a run, whose trainer `load` has seen before it began.
std::vector<std::vector<float>> OmegaAfter(const TrainOptions& options,
                                           const std::function<absl::Status(Trainer&)>& load) {
  const Corpus corpus = RandomCorpus(100, 24, kVocabulary, 5);
  InProcessWorld world(1);
  MetricsSink sink;
  const TrainingSurroundings surroundings{
      .communicator = world.communicator(0), .stream = Stream::Cpu(1), .train = corpus, .sink = sink};
  std::vector<std::vector<float>> omega;
  const absl::Status status = WithTrainer(options, surroundings, [&](Trainer& trainer) -> absl::Status {
    HADAL_RETURN_IF_ERROR(load(trainer));
    HADAL_RETURN_IF_ERROR(trainer.Run().status());
    const ParameterStore& parameters = trainer.engine().stage().parameters();
    for (size_t p = 0; p < parameters.plan().parameters.size(); ++p) {
      if (parameters.plan().parameters[p].role != ParameterRole::kOmega) continue;
      const Vector values = parameters.WeightVector(static_cast<int32_t>(p));
      omega.emplace_back(values.data, values.data + values.size);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return omega;
}

TEST(AdminProfileTest, LoadedWeightsAreNotProfiledAgain) {
  const TemporaryDirectory directory;
  TrainOptions options{.run_directory = directory / "trained", .model = Admin(2, 32), .batch = kBatch};
  options.rate = {.peak = 1e-2, .warmup_updates = 0};
  options.stop.steps = 2;
  options.depth.enabled = false;
  const auto trained = OmegaAfter(options, [](Trainer&) { return absl::OkStatus(); });
  ASSERT_EQ(trained.size(), 10u);
  EXPECT_NE(trained[3][0], trained[3][1]) << "a profile has one value for all of a vector";
  const std::string saved = FindLatest(options.run_directory)->checkpoint.directory;
  EXPECT_EQ(OmegaAfter(options, [](Trainer& trainer) { return trainer.ResumeLatest().status(); }), trained);
  options.run_directory = directory / "another";
  EXPECT_EQ(OmegaAfter(options, [&](Trainer& trainer) { return trainer.Resume(FindNamed(saved)); }), trained);
  options.rate = {.peak = 0, .warmup_initial_rate = 0};  // steps that change nothing
  EXPECT_EQ(OmegaAfter(options, [&](Trainer& trainer) { return trainer.InitializeFrom(FindNamed(saved)); }), trained);
}

}  // namespace
}  // namespace hadal::testing
