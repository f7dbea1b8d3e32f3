#include "tools/bench/bench_profile.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "layers/method_presets.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/vocabulary.h"
#include "tests/support/corpus_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"
#include "tools/bench/bench_step_report.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/profiled_costs.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 40;

TrainOptions SmallRun(ResidualMethod method = ResidualMethod::kDeepNorm) {
  TrainOptions options;
  options.model = TinyModel({.encoder_layers = 3,
                             .decoder_layers = 2,
                             .d_model = 16,
                             .d_ff = 32,
                             .heads = 2,
                             .vocabulary = kVocabulary,
                             .max_positions = 16});
  ApplyResidualMethod(method, options.model);
  options.batch = {.micro_batches = 2, .source_tokens = 32, .target_tokens = 32};
  return options;
}

Corpus SmallCorpus() {
  std::vector<Sample> samples;
  for (int32_t i = 0; i < 40; ++i) {
    const std::vector<int32_t> tokens(3 + i % 7, kSpecialTokens + i % 30);
    samples.push_back({.source = tokens, .target = tokens});
  }
  return CorpusOf(samples, kVocabulary, kVocabulary);
}

config::Profile Measure(const BenchProfileOptions& options, int ranks) {
  const Corpus corpus = SmallCorpus();
  config::Profile profile;
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    PrepareComputeThread();
    const auto measured = MeasureProfile(options, corpus, communicator, Stream::Cpu(1));
    if (measured.ok() && communicator.rank() == 0) profile = *measured;
    return measured.status();
  });
  EXPECT_TRUE(status.ok()) << status;
  return profile;
}

TEST(BenchProfile, HasEveryKindOfSublayerAtEveryCapacity) {
  constexpr int64_t kCarried = int64_t{1} << 40;
  const config::Profile profile =
      Measure({.train = SmallRun(), .halvings = 1, .rounds = 2, .carried_bytes = kCarried}, 2);
  EXPECT_GE(profile.process_bytes(), kCarried);
  ASSERT_EQ(profile.capacities_size(), 2);
  EXPECT_EQ(profile.capacities(1).target_tokens(), 16);
  EXPECT_EQ(profile.ranks(), 2);
  EXPECT_GT(profile.gflops(), 0);
  EXPECT_GT(profile.message_gb_per_second(), 0);
  for (const config::CapacityCosts& capacity : profile.capacities()) {
    EXPECT_GT(capacity.target_rows(), 0);
    EXPECT_LE(capacity.target_rows(), capacity.target_tokens());
    std::set<std::string> kinds;
    for (const config::SublayerCost& cost : capacity.sublayers()) {
      kinds.insert(cost.kind());
      EXPECT_GT(cost.forward_ms(), 0) << cost.kind();
      const bool layer = cost.kind().find("embedding") == std::string::npos && cost.kind() != "output_head";
      EXPECT_EQ(cost.recompute_ms() > 0, layer) << cost.kind();
      if (layer) {
        EXPECT_GT(cost.recomputed_backward_ms(), 0) << cost.kind();
      }
    }
    EXPECT_EQ(kinds.size(), 8u);
  }
}

// B2T ties the sublayers of a layer together, pre-norm adds a norm in front, ResiDual a piece behind each stack, mHC
// keeps several streams: the order of the clock's readings still fits.
TEST(BenchProfile, MeasuresEveryKindOfMethod) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kB2t, ResidualMethod::kReZero,
                                      ResidualMethod::kRFixup, ResidualMethod::kDlclPre, ResidualMethod::kDlclPost,
                                      ResidualMethod::kResidualDual, ResidualMethod::kMhc, ResidualMethod::kAttnRes}) {
    EXPECT_EQ(Measure({.train = SmallRun(method), .rounds = 1}, 1).capacities_size(), 1);
  }
  TrainOptions mixed = SmallRun(ResidualMethod::kMixLn);
  mixed.model.encoder.post_norm_share = mixed.model.decoder.post_norm_share = 0.5;  // a segment of each placement
  EXPECT_EQ(Measure({.train = mixed, .rounds = 1}, 1).capacities_size(), 1);
}

// A profile is what a plan reads: the step of one rank is its micro-batches through all sublayers, and the update.
TEST(ProfiledCosts, APlanAddsUpWhatTheProfileSays) {
  TrainOptions options = SmallRun();
  options.pipeline.stages = 1;
  const config::Profile measured = Measure({.train = options, .rounds = 1}, 1);
  const TemporaryDirectory directory;
  std::string text;
  google::protobuf::TextFormat::PrintToString(measured, &text);
  SetContents(directory / "profile.textproto", text);
  const auto profile = LoadProfile(directory / "profile.textproto").value();
  const auto costs = MakeProfiledCosts(profile, options.model, std::nullopt).value();
  for (const int every : {0, 2}) {
    options.pipeline.recompute_every = every;
    const auto report = MakePlanReport(options, 1, Stream::Cpu(1), *costs).value();
    const auto kept = costs->Sublayers(report.model, report.pipeline.capacity, false).value();
    const auto repeated = costs->Sublayers(report.model, report.pipeline.capacity, true).value();
    double step = 0;
    for (size_t s = 0; s < kept.size(); ++s) {
      step += 2 * (every > 0 && report.model.sublayers[s].layer >= 0 ? repeated : kept)[s].sum();
    }
    const double elements = static_cast<double>(report.model.ParameterElements());
    step += costs->UpdateSeconds(elements, elements);
    EXPECT_NEAR(report.step_seconds, step, 1e-9 * step);
    EXPECT_EQ(report.bubble, 0);
    double again = 0;
    for (const SublayerSeconds& seconds : repeated) again += every > 0 ? 2 * seconds.recompute : 0;
    EXPECT_NEAR(report.prediction->recompute_seconds[0], again, 1e-9 * step);
  }
}

TEST(ProfiledCosts, AnotherModelOrMicroBatchIsRefused) {
  TrainOptions options = SmallRun();
  const config::Profile profile = Measure({.train = options, .rounds = 1}, 1);
  const auto costs = MakeProfiledCosts(profile, options.model, std::nullopt).value();
  const ModelPlan model = ModelPlan::Make(options.model);
  const auto other = costs->Sublayers(model, {.source_rows = 64, .target_rows = 64}, false);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("only 32/32"));
  EXPECT_FALSE(costs->Sublayers(model, {.source_rows = 32, .target_rows = 64}, false).ok());
  options.model.d_ff = 64;
  const auto wider = MakeProfiledCosts(profile, options.model, std::nullopt).status();
  EXPECT_EQ(wider.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wider.message()), HasSubstr("d_ff 32, this model has 64"));
  const auto streams = MakeProfiledCosts(profile, SmallRun(ResidualMethod::kMhc).model, std::nullopt).status();
  EXPECT_THAT(std::string(streams.message()), HasSubstr("residual streams 1, this model has 4"));
  ModelOptions permuted = SmallRun().model;
  permuted.decoder.residual_mixing = HyperMixing::kPermutations;
  EXPECT_THAT(std::string(MakeProfiledCosts(profile, permuted, std::nullopt).status().message()),
              HasSubstr("residual_mixing \"sinkhorn\", this model has \"permutations\""));
  ModelOptions adaptive = SmallRun().model;
  adaptive.adaptive_cutoffs = {.ids = {10}, .count = 1};
  EXPECT_THAT(std::string(MakeProfiledCosts(profile, adaptive, std::nullopt).status().message()),
              HasSubstr("adaptive_cutoffs"));
}

TEST(ShallowModel, IsAsDeepAsItMustBe) {
  TrainOptions options = SmallRun();
  options.model.encoder_layers = options.model.decoder_layers = 100;
  const int64_t whole = ModelPlan::Make(options.model).ParameterElements();
  const ModelOptions shallow = ShallowModel(options.model, whole / 20);
  EXPECT_LT(shallow.encoder_layers, 20);
  EXPECT_GE(ModelPlan::Make(shallow).ParameterElements(), whole / 20);
  EXPECT_EQ(ShallowModel(options.model, 2 * whole).encoder_layers, 100);
}

ModelOptions SmallModel(int encoder_layers) {
  ModelOptions model =
      TinyModel({.encoder_layers = encoder_layers, .decoder_layers = 3, .d_ff = 24, .heads = 2, .vocabulary = 50});
  ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
  return model;
}

// Two sentence pairs of 3 and 4 source rows, 5 and 1 target rows, and padding rows that must not count.
PackedBatch Batch() {
  PackedBatch batch{.source_offsets = {0, 3, 7}, .target_offsets = {0, 5, 6}, .samples = {0, 1}};
  batch.source.assign(8, kPaddingRow);
  batch.target_input.assign(8, kPaddingRow);
  batch.target.assign(8, kPaddingRow);
  return batch;
}

// By hand, multiply-adds: of an encoder layer 4 + 2·3 matrices of d² for 7 rows, of a decoder layer as many for 6 rows,
// and cross-attention's 2 for 6 rows and 2 for 7.
constexpr double kD2 = 64, kEncoder = 7 * 10 * kD2, kDecoder = (6 * 10 + 6 * 2 + 7 * 2) * kD2, kHead = 6.0 * 8 * 50;
// Pairs that attend: source 9 + 16; target, causal, 15 + 1; cross 15 + 4.
constexpr double kEncoderPairs = 8 * 25, kDecoderPairs = 8 * (16 + 19);

TEST(StepFlops, CountsByHand) {
  const ModelPlan plan = ModelPlan::Make(SmallModel(2));
  const PackedBatch batches[] = {Batch(), Batch()};
  const StepFlops flops = StepFlopsOf(plan, batches, /*recompute=*/false);
  const double layers = 2 * kEncoder + 3 * kDecoder, pairs = 2 * kEncoderPairs + 3 * kDecoderPairs;
  EXPECT_DOUBLE_EQ(flops.linear, 2 * 6 * (layers + kHead));
  EXPECT_DOUBLE_EQ(flops.attention, 2 * 12 * pairs);
  EXPECT_DOUBLE_EQ(flops.recomputed_linear, 0);
  EXPECT_DOUBLE_EQ(flops.recomputed_attention, 2 * 2 * pairs);
  const StepFlops twice = StepFlopsOf(plan, batches, /*recompute=*/true);
  EXPECT_DOUBLE_EQ(twice.model(), flops.model());
  EXPECT_DOUBLE_EQ(twice.recomputed_linear, 2 * 2 * layers);
  EXPECT_DOUBLE_EQ(twice.recomputed_attention, 2 * 6 * pairs);
  EXPECT_DOUBLE_EQ(twice.executed(), twice.model() + 2 * 2 * layers + 2 * 6 * pairs);
}

TEST(StepFlops, ALanguageModelHasNoCrossAttention) {
  const ModelPlan plan = ModelPlan::Make(SmallModel(0));
  PackedBatch batch = Batch();
  batch.source.clear();
  batch.source_offsets.clear();
  const StepFlops flops = StepFlopsOf(plan, {&batch, 1}, false);
  EXPECT_DOUBLE_EQ(flops.linear, 6 * (3 * 6 * 10 * kD2 + kHead));
  EXPECT_DOUBLE_EQ(flops.attention, 12 * 3 * 8 * 16);
}

}  // namespace
}  // namespace hadal
