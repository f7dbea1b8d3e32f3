// How a run that was started alone lies on the CPU; whole grids and devices: train_command_test.sh, gpu_ranks_test.sh.
#include "launch/train/train_layout.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainLayoutTest : public ::testing::Test {
 protected:
  TrainLayoutTest() {
    arguments_.device.kind = "cpu";
    options_.model = {.encoder_layers = 2,
                      .decoder_layers = 2,
                      .d_model = 16,
                      .d_ff = 32,
                      .heads = 2,
                      .source_vocabulary = 20,
                      .target_vocabulary = 20};
    options_.batch = {.micro_batches = 2, .source_tokens = 32, .target_tokens = 32};
  }
  absl::StatusOr<RunLayout> LayOut() {
    Collectives collectives(world_->communicator(), absl::Seconds(30));
    return LayOutRun(arguments_, *world_, collectives, options_, device_);
  }

  const std::unique_ptr<World> world_ = *World::Start(1);
  TrainArguments arguments_;
  TrainOptions options_;
  RankDevice device_;
};

TEST_F(TrainLayoutTest, TheWholeModelOnOneRank) {
  const absl::StatusOr<RunLayout> layout = LayOut();
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->plan.Hash(), ModelPlan::Make(options_.model).Hash());
  EXPECT_EQ(layout->pipeline.grid.stages, 1);
  EXPECT_EQ(layout->pipeline.borders.back(), static_cast<int32_t>(layout->plan.sublayers.size()));
  EXPECT_EQ(layout->stream.device(), nullptr);
  EXPECT_EQ(device_.chosen.device, nullptr);
  EXPECT_EQ(device_.transport.nccl, nullptr);
  EXPECT_FALSE(layout->resources.device_transfers);
  EXPECT_GT(layout->resources.memory_limit_bytes, 0) << "what the host has free";
}

TEST_F(TrainLayoutTest, TheLimitThatTheConfigSetsHolds) {
  options_.pipeline.memory_limit_bytes = int64_t{1} << 40;
  ASSERT_TRUE(LayOut().ok());
  EXPECT_EQ(LayOut()->resources.memory_limit_bytes, int64_t{1} << 40);
  options_.pipeline.memory_limit_bytes = 1 << 10;
  const absl::Status status = LayOut().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the limit is 1024 bytes"));
}

TEST_F(TrainLayoutTest, APipelineThatCannotBeCutSoIsToldWithWhoWantsIt) {
  const TemporaryDirectory directory;
  SetContents(directory / "run.textproto", "pipeline { stages: 3 }");
  arguments_.config.files = {directory / "run.textproto"};
  options_.pipeline.stages = 3;
  const absl::Status status = LayOut().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("1 rank was started"), HasSubstr("run.textproto:1:12: pipeline.stages = 3")));
}

}  // namespace
}  // namespace hadal
