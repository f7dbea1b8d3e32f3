// The same bits, whatever the layout: stages, threads, schedules, chunks, recomputation, validation; and on AVX2 as on
// wider instruction sets.
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "layers/model_plan.h"
#include "pipeline/engine/memory_fit.h"
#include "runtime/data/packed_batch.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/corpus_of.h"
#include "tests/support/each_instruction_set.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 203;

RunSpec BaseSpec(ResidualMethod method, int d_model) {
  RunSpec spec;
  spec.model = SmallModel(method, {.d_model = d_model, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 5, .source_tokens = 96, .target_tokens = 96};
  spec.optimizer.clip_norm = 0.5;
  spec.optimizer.weight_decay = 0.01;
  return spec;
}

RunSpec LanguageModelSpec(ResidualMethod method, int d_model) {
  RunSpec spec = BaseSpec(method, d_model);
  spec.model = SmallModel(method, {.encoder_layers = 0, .d_model = d_model, .vocabulary = kVocabulary});
  return spec;
}

struct Layout {
  int ranks = 1;
  int threads = 1;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int chunks = 1;
  int recompute_every = 0;
  bool validate = false;
  bool avx2 = false;  // instead of the CPU's widest instruction set
};

std::string ToString(const Layout& l) {
  return std::to_string(l.ranks) + " ranks, " + std::to_string(l.threads) + " threads, " +
         std::string(ToString(l.schedule)) + ", " + std::to_string(l.chunks) + " chunks, recompute every " +
         std::to_string(l.recompute_every) + (l.validate ? ", validating" : "") + (l.avx2 ? ", AVX2" : "");
}

RunSpec WithLayout(RunSpec spec, const Layout& layout) {
  spec.ranks = layout.ranks;
  spec.threads = layout.threads;
  spec.pipeline.schedule = layout.schedule;
  spec.pipeline.chunks = layout.chunks;
  spec.pipeline.recompute_every = layout.recompute_every;
  spec.validate_every_step = layout.validate;
  return spec;
}

void ExpectSameBits(const RunSpec& base, const std::vector<Layout>& layouts) {
  const Corpus corpus = RandomCorpusFor(base.model, 400, 24, 5);
  const RunOutcome reference = Train(base, corpus);
  ASSERT_EQ(static_cast<int>(reference.loss.size()), base.steps);
  for (const double loss : reference.loss) EXPECT_TRUE(std::isfinite(loss));
  for (const Layout& layout : layouts) {
    std::optional<OnInstructionSet> on;
#if HWY_ARCH_X86
    if (layout.avx2 && (hwy::SupportedTargets() & HWY_AVX2) != 0) on.emplace(HWY_AVX2);
#endif
    EXPECT_EQ(FirstDifference(reference, Train(WithLayout(base, layout), corpus)), "") << ToString(layout);
  }
}

// Every combination of the axes; d_model 64.
std::vector<Layout> AllLayouts() {
  std::vector<Layout> layouts;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int threads : {1, 2}) {
      for (const int recompute_every : {0, 3}) {
        for (const bool validate : {false, true}) {
          for (const ScheduleKind schedule : AllScheduleKinds()) {
            const bool several = RunsSeveralChunks(schedule) && schedule != ScheduleKind::kGpipe;
            for (const int chunks : several ? std::vector{1, 2, 3} : std::vector{1}) {
              layouts.push_back({ranks, threads, schedule, chunks, recompute_every, validate});
            }
          }
        }
      }
    }
  }
  return layouts;
}

// Each axis away from the reference, and all together, where threads bite: d_model 512.
std::vector<Layout> SomeLayouts() {
  return {{1, 2, ScheduleKind::k1F1B, 1, 0, false},
          {2, 1, ScheduleKind::k1F1B, 1, 0, false},
          {3, 2, ScheduleKind::kGpipe, 1, 4, false},
          {4, 2, ScheduleKind::k1F1B, 1, 1, true},
          {2, 2, ScheduleKind::kInterleaved1F1B, 2, 5, true},
          {2, 1, ScheduleKind::k1F1BSplit, 1, 3, false},
          {3, 2, ScheduleKind::kZbH1, 1, 0, true},
          {3, 1, ScheduleKind::kInterleavedZb, 3, 0, false}};
}

class BitIdentityTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(BitIdentityTest, NightlyEveryLayoutAtWidth64) { ExpectSameBits(BaseSpec(GetParam(), 64), SomeLayouts()); }

// All axes away from the reference at once.
TEST_P(BitIdentityTest, AnotherLayout) {
  RunSpec spec = BaseSpec(GetParam(), 32);
  spec.steps = 2;
  ExpectSameBits(spec, {{3, 2, ScheduleKind::kInterleaved1F1B, 2, 3, true},
                        {3, 2, ScheduleKind::kZbH1, 1, 0, true, /*avx2=*/true}});
}

TEST(BitIdentityTest, EveryAxis) {
  ExpectSameBits(BaseSpec(ResidualMethod::kDeepNorm, 64), SomeLayouts());
  ExpectSameBits(LanguageModelSpec(ResidualMethod::kDlclPre, 32), SomeLayouts());
}

// Kept and recomputed segments of any length beside each other. Regions of the arena lie apart, and nothing may write
// between them. Arenas have the planned bytes.
TEST(BitIdentityTest, RandomPlansOfRecomputation) {
  std::minstd_rand random(7);
  const auto below = [&random](uint32_t count) { return static_cast<int>(random() / 8 % count); };
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kRFixup,
                                      ResidualMethod::kMhc, ResidualMethod::kAttnRes}) {
    RunSpec base = BaseSpec(method, 32);
    base.steps = 2;
    const ModelPlan plan = ModelPlan::Make(base.model);
    const Corpus corpus = RandomCorpusFor(base.model, 400, 24, 5);
    const RunOutcome reference = Train(base, corpus);
    for (int i = 0; i < 4; ++i) {
      RunSpec spec = base;
      spec.poison = true;
      spec.ranks = 1 + i;
      spec.pipeline.schedule = AllScheduleKinds()[below(static_cast<uint32_t>(AllScheduleKinds().size()))];
      const bool interleaves =
          RunsSeveralChunks(spec.pipeline.schedule) && spec.pipeline.schedule != ScheduleKind::kGpipe;
      spec.pipeline.chunks = interleaves ? 2 : 1;
      std::string text = std::string(ToString(spec.pipeline.schedule));
      for (int32_t first = below(4); first < std::ssize(plan.sublayers); first += 1 + below(4)) {
        spec.pipeline.recompute.push_back({.first = first, .length = below(4)});
        text += " " + std::to_string(first) + ":" + std::to_string(spec.pipeline.recompute.back().length);
      }
      SCOPED_TRACE(absl::StrCat(ResidualMethodName(method), ", ", spec.ranks, " ranks, ", text));
      EXPECT_EQ(FirstDifference(reference, Train(spec, corpus)), "");
      spec.poison = false;  // which has gaps in the arena
      spec.steps = 0;
      const RunOutcome outcome = Train(spec, corpus);
      const auto pipeline =
          MakePipelineLayout(plan, spec.batch, spec.pipeline, spec.ranks, 0, {.free_links = true}).value();
      const std::vector<ArenaLayout> planned = TrainingLayouts(plan, pipeline, Stream::Cpu(1)).value();
      for (int rank = 0; rank < spec.ranks; ++rank) {
        EXPECT_EQ(outcome.arena_bytes[rank], planned[rank].total_bytes()) << rank;
      }
    }
  }
}

TEST(BitIdentityTest, NightlyEveryCombinationOfTheAxes) {
  ExpectSameBits(BaseSpec(ResidualMethod::kDeepNorm, 64), AllLayouts());
}

TEST(BitIdentityTest, WhereThreadsBiteAtWidth512) {
  RunSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 512);
  spec.model = SmallModel(ResidualMethod::kDeepNorm,
                          {.encoder_layers = 2, .decoder_layers = 3, .d_model = 512, .vocabulary = kVocabulary});
  spec.batch.micro_batches = 3;  // fewer would not show their order
  spec.steps = 2;
  std::vector<Layout> layouts = SomeLayouts();
  std::erase_if(layouts, [](const Layout& layout) { return layout.threads == 1; });
  ExpectSameBits(spec, layouts);
}

TEST_P(BitIdentityTest, NightlyEveryLayoutOfALanguageModel) {
  ExpectSameBits(LanguageModelSpec(GetParam(), 32), SomeLayouts());
}

RunSpec EncoderSpec(ResidualMethod method) {
  RunSpec spec = BaseSpec(method, 32);
  spec.model = SmallModel(method, {.encoder_layers = 8, .decoder_layers = 0, .d_model = 32, .vocabulary = kVocabulary});
  spec.model.block = kBertBlock;
  spec.steps = 2;
  return spec;
}

// Masked tokens, gathered in front of the head; a norm behind the embedding.
TEST(BitIdentityTest, EncodersAlone) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDeepNorm, ResidualMethod::kDlclPost,
                                      ResidualMethod::kResidualDual, ResidualMethod::kMhc, ResidualMethod::kAttnRes}) {
    ExpectSameBits(EncoderSpec(method), SomeLayouts());
  }
}

// Micro-batches of a few tokens, some of which are masked in none; then no token can be.
TEST(BitIdentityTest, MicroBatchesWithoutAMaskedToken) {
  RunSpec spec = EncoderSpec(ResidualMethod::kPreLn);
  spec.batch.target_tokens = 8;
  ExpectSameBits(spec, SomeLayouts());
  const Corpus unknown = CorpusOf(std::vector<Sample>(20, {.target = {kUnknownToken, kUnknownToken}}), 0, kVocabulary);
  spec.optimizer = {};
  const RunOutcome outcome = Train(spec, unknown);
  EXPECT_EQ(outcome.loss, std::vector<double>(2, 0.0));
  EXPECT_EQ(outcome.gradient_norm, std::vector<double>(2, 0.0));
}

// Blocks: RMSNorm, gates, activations, no biases or fewer, positions, heads.
TEST(BitIdentityTest, OtherBlocks) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDeepNorm, ResidualMethod::kLnScaling,
                                      ResidualMethod::kCompleteP, ResidualMethod::kKeel, ResidualMethod::kSubLn,
                                      ResidualMethod::kDlclPre, ResidualMethod::kMhc, ResidualMethod::kAttnRes}) {
    RunSpec spec = LanguageModelSpec(method, 32);
    spec.model.block = kModernBlock;
    spec.model.block.first_norm = method != ResidualMethod::kPreLn && method != ResidualMethod::kAttnRes;
    spec.model.activation_dropout = 0.1;
    spec.steps = 2;
    ExpectSameBits(spec, {{3, 2, ScheduleKind::kInterleaved1F1B, 2, 3, true},
                          {3, 2, ScheduleKind::kZbH1, 1, 0, true, /*avx2=*/true}});
  }
  RunSpec spec = BaseSpec(ResidualMethod::kPreLn, 64);
  spec.model.block.activation = Activation::kGelu;
  spec.model.block.biases = Biases::kQkv;
  spec.model.block.positions = Positions::kLearned;
  spec.steps = 2;
  ExpectSameBits(spec, SomeLayouts());
}

TEST(BitIdentityTest, SeparateAndHalfTiedEmbeddings) {
  for (const EmbeddingSharing sharing : {EmbeddingSharing::kNone, EmbeddingSharing::kDecoder}) {
    RunSpec spec = BaseSpec(ResidualMethod::kBranchNorm, 32);
    spec.model.sharing = sharing;
    ExpectSameBits(spec, SomeLayouts());
  }
}

// The head works on 64 rows at a time, and threads split the products of fewer rows by columns.
TEST(BitIdentityTest, LargeVocabulary) {
  RunSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 8);
  spec.model = SmallModel(ResidualMethod::kDeepNorm,
                          {.encoder_layers = 1, .decoder_layers = 2, .d_model = 8, .heads = 2, .vocabulary = 250000});
  spec.model.sharing = EmbeddingSharing::kDecoder;
  spec.batch.micro_batches = 2;
  spec.steps = 2;
  ExpectSameBits(spec, {{1, 3, ScheduleKind::k1F1B, 1, 0, false}, {2, 2, ScheduleKind::k1F1B, 1, 1, true}});
  spec.model = WithAdaptiveSoftmax(spec.model, EmbeddingSharing::kDecoder, 10, 20);  // nearly all words are in one band
  spec.model.adaptive_factor = 2;
  ExpectSameBits(spec, {{2, 2, ScheduleKind::k1F1B, 1, 1, true}});
}

TEST(BitIdentityTest, FewerMicroBatchesThanStages) {
  RunSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 32);
  spec.batch.micro_batches = 2;
  ExpectSameBits(spec, {{4, 1, ScheduleKind::k1F1B, 1, 0, false},
                        {4, 1, ScheduleKind::kGpipe, 1, 2, false},
                        {4, 1, ScheduleKind::kInterleaved1F1B, 3, 0, false},
                        {4, 1, ScheduleKind::kZbH1, 1, 0, false},
                        {4, 1, ScheduleKind::kInterleavedZb, 3, 0, false}});
}

// Bands are shared by three sublayers, by two, or belong to the head.
TEST(BitIdentityTest, AdaptiveSoftmax) {
  RunSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 64);
  spec.steps = 2;
  spec.model = WithAdaptiveSoftmax(spec.model, EmbeddingSharing::kAll, 30, 90);
  ExpectSameBits(spec, SomeLayouts());
  spec = LanguageModelSpec(ResidualMethod::kPreLn, 32);
  spec.steps = 2;
  for (const EmbeddingSharing sharing : {EmbeddingSharing::kDecoder, EmbeddingSharing::kNone}) {
    spec.model = WithAdaptiveSoftmax(spec.model, sharing, 30, 90);
    ExpectSameBits(spec, {{2, 2, ScheduleKind::k1F1B, 1, 3, true}, {3, 1, ScheduleKind::kInterleavedZb, 2, 0, false}});
  }
}

void ExpectSameBitsAtEveryCut(RunSpec spec) {
  const Corpus corpus = RandomCorpusFor(spec.model, 400, 24, 5);
  const RunOutcome reference = Train(spec, corpus);
  const ModelPlan plan = ModelPlan::Make(spec.model);
  spec.ranks = 2;
  for (int32_t cut = 1; cut < static_cast<int32_t>(plan.sublayers.size()); ++cut) {
    if (plan.NextCut(cut) != cut) continue;
    spec.pipeline.split = {cut};
    spec.pipeline.recompute_every = cut % 2;
    EXPECT_EQ(FirstDifference(reference, Train(spec, corpus)), "") << "cut before " << cut;
  }
}

// What crosses a cut changes along a stack that combines its layers: behind the embedding, in each layer's front,
// behind the stack.
TEST(BitIdentityTest, EveryCutOfCombinedLayers) {
  for (const bool encoder : {true, false}) {
    for (const bool decoder : {true, false}) {
      if (!encoder && !decoder) continue;
      RunSpec spec = BaseSpec(ResidualMethod::kB2t, 32);  // each layer's input, the combination, is read twice
      spec.steps = 2;
      spec.model.encoder_layers = spec.model.decoder_layers = 2;
      spec.model.encoder.combine_layers = encoder;
      spec.model.decoder.combine_layers = decoder;
      ExpectSameBitsAtEveryCut(spec);
    }
  }
}

// Likewise where sublayers read blocks: at their borders, within them, behind the stack.
TEST(BitIdentityTest, EveryCutOfBlocks) {
  for (const ResidualMethod method : {ResidualMethod::kAttnRes, ResidualMethod::kAttnResDelta}) {
    RunSpec spec = BaseSpec(method, 32);
    spec.steps = 2;
    spec.model.encoder_layers = spec.model.decoder_layers = 2;
    spec.model.encoder.attention_residual_block_sublayers = 3;
    spec.model.decoder.attention_residual_block_sublayers = 4;
    ExpectSameBitsAtEveryCut(spec);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, BitIdentityTest, ::testing::ValuesIn(AllResidualMethods()),
                         [](const auto& info) { return ResidualMethodName(info.param); });

}  // namespace
}  // namespace hadal::testing
