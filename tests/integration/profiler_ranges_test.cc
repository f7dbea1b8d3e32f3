// What a profiler is shown of a training step on a device: stages, micro-batches and sublayers, properly nested.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/profiler.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/emulated_device.h"

namespace hadal::testing {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

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
