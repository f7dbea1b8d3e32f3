// Training where a feed-forward layer's ReLU and the gradients of biases ride on the products, and where nothing does:
// losses are the same but for a bias's rounding, and in either case no layout, graph, recomputation or queue of weight
// gradients, as late as it can be, changes a bit. On the emulated device, whose products can do both.
#include "gmock/gmock.h"
#include "runtime/profiler.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/emulated_device.h"

namespace hadal::testing {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

constexpr int kVocabulary = 61;

RunSpec SmallRun(bool epilogues) {
  RunSpec spec;
  spec.model = SmallModel(ResidualMethod::kDeepNorm,
                          {.encoder_layers = 1, .decoder_layers = 1, .d_model = 16, .vocabulary = kVocabulary});
  spec.model.activation_dropout = 0;
  spec.batch = {.micro_batches = 2, .source_tokens = 20, .target_tokens = 20};
  spec.compute_storage = Storage::kBFloat16;
  spec.make_device = [epilogues](int rank) {
    auto device = std::make_unique<EmulatedDevice>(7 + rank);
    if (!epilogues) device->RefuseEpilogues();
    return device;
  };
  spec.pipeline.graphs = GraphMode::kOff;
  spec.steps = 2;
  return spec;
}

TEST(EpilogueRunTest, TheLossIsTheSameWithoutThem) {
  const Corpus corpus = RandomCorpus(60, 9, kVocabulary, 5);
  const RunOutcome with = Train(SmallRun(true), corpus), without = Train(SmallRun(false), corpus);
  ASSERT_FALSE(with.loss.empty());
  ASSERT_EQ(with.loss.size(), without.loss.size());
  for (size_t step = 0; step < with.loss.size(); ++step) {
    EXPECT_NEAR(with.loss[step] / without.loss[step], 1, 2e-3) << "step " << step;
    // Of each of two micro-batches: six products with a bias, two masks of a ReLU, which sum the hidden biases'
    // gradients, the sums of four other biases' gradients, and merges of these sums once their memory is full.
    EXPECT_EQ(without.launches[step] - with.launches[step], 2 * (6 + 2 + 4 + 1)) << "step " << step;
  }
}

TEST(EpilogueRunTest, NoLayoutChangesABit) {
  const Corpus corpus = RandomCorpus(60, 9, kVocabulary, 5);
  for (const bool epilogues : {true, false}) {
    const RunSpec spec = SmallRun(epilogues);
    RunSpec other = spec;
    other.ranks = 2;
    other.pipeline.recompute_every = 2;
    other.pipeline.graphs = GraphMode::kAuto;
    other.pipeline.overlap_weight_gradients = true;
    EXPECT_EQ(FirstDifference(Train(spec, corpus), Train(other, corpus)), "") << "with epilogues " << epilogues;
  }
}

// Launches of a layer pair, forward and backward, where no mask and no sum rides on a product. 69 where every gradient
// is made where it arises. In the second case the decoder's backward is in two halves.
TEST(EpilogueRunTest, ALayerPairIsFewLaunches) {
  const Corpus corpus = RandomCorpus(60, 9, kVocabulary, 5);
  const auto launches = [&](ScheduleKind schedule, int layers) {
    RunSpec spec = SmallRun(/*epilogues=*/true);
    spec.make_device = [](int rank) {
      auto device = std::make_unique<EmulatedDevice>(7 + rank);
      device->RefuseMasksAndSums();
      return device;
    };
    spec.model.encoder_layers = spec.model.decoder_layers = layers;
    ApplyResidualMethod(ResidualMethod::kDeepNorm, spec.model);
    spec.batch = {.micro_batches = 1, .source_tokens = 40, .target_tokens = 40};
    spec.pipeline.schedule = schedule;
    if (schedule == ScheduleKind::kInterleavedSplit) spec.pipeline.chunks = 2;
    spec.steps = 1;
    return Train(spec, corpus).launches.at(0);
  };
  for (const ScheduleKind schedule : {ScheduleKind::k1F1B, ScheduleKind::kInterleavedSplit}) {
    constexpr int kFew = 2, kMany = 6;  // so many that groups of layers repeat
    const double of_a_pair = (launches(schedule, kMany) - launches(schedule, kFew)) / (kMany - kFew);
    EXPECT_LE(of_a_pair, 55);
  }
}

// What a profiler is shown of a training step on a device: stages, micro-batches and sublayers, properly nested.

// Each range as its path: "stage 0 forward, micro-batch 0 / sublayer 1".
class PathRecorder : public Profiler {
 public:
  explicit PathRecorder(std::vector<std::string>& paths) : paths_(paths) {}
  ~PathRecorder() override { EXPECT_TRUE(open_.empty()); }
  void Begin(const char* text) override {
    open_.push_back(open_.empty() ? text : open_.back() + " / " + text);
    paths_.push_back(open_.back());
  }
  void End() override {
    ASSERT_FALSE(open_.empty());
    open_.pop_back();
  }

 private:
  std::vector<std::string>& paths_;
  std::vector<std::string> open_;
};

class ProfiledDevice : public EmulatedDevice {
 public:
  explicit ProfiledDevice(std::vector<std::string>& paths) : recorder_(paths) {}
  Profiler* profiler() override { return &recorder_; }

 private:
  PathRecorder recorder_;
};

TEST(ProfilerRangesTest, AStepShowsItsStagesMicroBatchesAndSublayers) {
  RunSpec spec;
  spec.model = SmallModel(ResidualMethod::kDeepNorm,
                          {.encoder_layers = 1, .decoder_layers = 1, .d_model = 32, .vocabulary = 61});
  spec.batch = {.micro_batches = 2, .source_tokens = 20, .target_tokens = 20};
  spec.steps = 1;
  spec.ranks = 2;
  spec.pipeline.recompute_every = 2;
  spec.pipeline.graphs = GraphMode::kOff;  // a graph is one range: what is in it was shown when it was recorded
  std::vector<std::string> paths[2];
  spec.make_device = [&](int rank) { return std::make_unique<ProfiledDevice>(paths[rank]); };
  Train(spec, RandomCorpus(60, 9, 61, 5));
  EXPECT_THAT(paths[0], IsSupersetOf({"stage 0 step", "stage 0 step / stage 0 forward, micro-batch 0",
                                      "stage 0 step / stage 0 forward, micro-batch 1 / sublayer 1",
                                      "stage 0 step / stage 0 backward, micro-batch 0 / sublayer 1",
                                      "stage 0 step / stage 0 optimizer"}));
  EXPECT_THAT(paths[1], Contains("stage 1 step / stage 1 backward, micro-batch 1 / stage 1 recompute, micro-batch 1"));
}

}  // namespace
}  // namespace hadal::testing
