// A rank's programs share memory (runtime/arena.h): between them whatever is scratch is filled with NaN here, and
// neither training, nor evaluations, nor translations, nor checkpoints that are written meanwhile change a bit.

#include "gtest/gtest.h"
#include "pipeline/engine/engine.h"
#include "pipeline/trainer.h"
#include "pipeline/validator.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/vocabulary.h"
#include "tests/integration/pipeline_run.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 53;

RunSpec SmallSpec(ResidualMethod method) {
  RunSpec spec;
  spec.model = SmallModel(method, {.encoder_layers = 3, .decoder_layers = 3, .d_model = 32, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 4, .source_tokens = 48, .target_tokens = 48};
  spec.optimizer.clip_norm = 0.5;
  spec.validate_every_step = true;
  return spec;
}

RunSpec Translating(RunSpec spec) {
  spec.pipeline.decoder = {.beam = {.beam = 3, .max_length_b = 6}, .sentences = 5};
  return spec;
}

RunSpec Poisoned(RunSpec spec) {
  spec.poison = true;
  return spec;
}

void ExpectSame(const RunOutcome& expected, const RunOutcome& outcome, const std::string& what) {
  EXPECT_EQ(FirstDifference(expected, outcome), "") << what;
  EXPECT_EQ(expected.validation_loss, outcome.validation_loss) << what;
}

TEST(ProgramOverlayTest, NoMethodReadsWhatItHasNotWritten) {
  const Corpus corpus = RandomCorpus(80, 14, kVocabulary, 5);
  for (const ResidualMethod method : AllResidualMethods()) {
    const std::string name = ResidualMethodName(method);
    RunSpec spec = SmallSpec(method);
    spec.ranks = 2;
    const RunOutcome apart = Train(spec, corpus);
    ExpectSame(apart, Train(Poisoned(spec), corpus), name);
    const RunOutcome clean = Train(Translating(spec), corpus), poisoned = Train(Poisoned(Translating(spec)), corpus);
    ExpectSame(apart, poisoned, name + ", translating");
    EXPECT_EQ(clean.translations, poisoned.translations) << name;
    EXPECT_EQ(clean.bleu, poisoned.bleu) << name;
  }
}

// Cut between a decoder layer's self- and cross-attention, around the target embedding and in front of the head; with
// recomputation, chunks and replicas, whose sums and messages have scratch as well.
TEST(ProgramOverlayTest, NorDoesAnyLayout) {
  const Corpus corpus = RandomCorpus(80, 14, kVocabulary, 5);
  const RunSpec whole = Translating(SmallSpec(ResidualMethod::kDeepNorm));
  const RunOutcome expected = Train(whole, corpus);
  const int32_t target = ModelPlan::Make(whole.model).target_embedding(),
                head = ModelPlan::Make(whole.model).output_head();
  struct Layout {
    const char* name;
    int ranks;
    PipelineOptions pipeline;
  };
  const Layout layouts[] = {
      {"cut inside a layer", 3, {.split = {target + 2, target + 5}}},
      {"cut around the target embedding", 3, {.split = {target, target + 1}}},
      {"cut in front of the head, recomputed", 2, {.split = {head}, .recompute_every = 2}},
      {"chunks", 2, {.chunks = 3, .schedule = ScheduleKind::kInterleaved1F1B, .outstanding_sends = 1}},
      {"weight halves kept back", 3, {.schedule = ScheduleKind::kZbH1}},
      {"weight halves of chunks kept back", 2, {.chunks = 3, .schedule = ScheduleKind::kInterleavedZb}},
      {"weight halves, recomputed", 2, {.schedule = ScheduleKind::kZbH1, .recompute_every = 2}},
  };
  for (const Layout& layout : layouts) {
    RunSpec spec = whole;
    spec.ranks = layout.ranks;
    spec.pipeline = layout.pipeline;
    spec = Poisoned(Translating(spec));
    const RunOutcome outcome = Train(spec, corpus);
    ExpectSame(expected, outcome, layout.name);
    EXPECT_EQ(expected.translations, outcome.translations) << layout.name;
  }
  for (const bool sharded : {true, false}) {
    RunSpec spec = whole;
    spec.ranks = 4;
    spec.pipeline.replicas = 2;
    spec.pipeline.shard_optimizer_state = sharded;
    ExpectSame(Train(spec, corpus), Train(Poisoned(spec), corpus), sharded ? "sharded" : "replicas");
  }
}

class OverlaidTrainerTest : public SmallTrainerTest {
 protected:
  OverlaidTrainerTest() : SmallTrainerTest(Storage::kFloat32) {
    options_.depth.enabled = false;
    options_.validation.every_steps = 1;
    options_.checkpoint.every_steps = 1;
    options_.checkpoint.keep_last = kSteps;
    options_.stop.steps = kSteps;
  }

  static constexpr int kSteps = 4;

  // The file of every step's checkpoint, which the next steps and their validations are beside.
  std::vector<std::string> Files(const std::string& name, bool translates) {
    TrainOptions options = options_;
    options.run_directory = directory_ / name;
    if (translates) options.pipeline.decoder = {.beam = {.beam = 2, .max_length_b = 4}, .sentences = 3};
    const ModelPlan plan = ModelPlan::Make(options.model);
    const PipelineLayout pipeline = MakePipelineLayout(plan, options.batch, options.pipeline, 1).value();
    InProcessWorld world(1);
    PrepareComputeThread();
    TrainerRecord record;
    TrainingSurroundings surroundings{.communicator = world.communicator(0),
                                      .stream = Stream::Cpu(1),
                                      .train = corpus_,
                                      .validation = &corpus_,
                                      .sink = record};
    std::vector<std::string> words;
    for (int id = kSpecialTokens; id < kSmallVocabulary; ++id) words.push_back(absl::StrCat("w", id));
    const Vocabulary vocabulary = Vocabulary::FromTokens(words).value();
    std::optional<ValidationBleu> bleu;
    if (translates) {
      bleu.emplace(corpus_, CorpusVocabularies{vocabulary, vocabulary}, 3, plan, pipeline, absl::Seconds(20));
      surroundings.validation_bleu = [&](Engine& engine, int64_t update) {
        const auto score = (*bleu)(engine, update);
        for (const bool on_host : {false, true}) std::ranges::fill(engine.arena().scratch(on_host), std::byte{0xFF});
        return score;
      };
    }
    auto trainer = Trainer::Create(options, plan, pipeline, surroundings, {.run_directory = options.run_directory});
    const auto outcome = (*trainer)->Run();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    std::vector<std::string> files;
    for (int step = 1; step <= kSteps; ++step) {
      files.push_back(
          Contents(absl::StrCat(options.run_directory, "/checkpoints/step_0000000", step, "/rank_00000.safetensors")));
    }
    return files;
  }
};

TEST_F(OverlaidTrainerTest, CheckpointsWrittenBesideValidationsAreTheSame) {
  for (const int64_t buffer_bytes : {int64_t{0}, int64_t{1} << 30}) {
    options_.pipeline.save_buffer_bytes = buffer_bytes;
    const std::string size = absl::StrCat(buffer_bytes);
    const std::vector<std::string> without = Files(absl::StrCat("without", size), false);
    const std::vector<std::string> with = Files(absl::StrCat("with", size), true);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_GT(without[step].size(), 10000u);
      EXPECT_TRUE(without[step] == with[step]) << "of step " << step + 1 << ", a buffer of " << size;
    }
  }
}

}  // namespace
}  // namespace hadal::testing
