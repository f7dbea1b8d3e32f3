// What a run says of samples that it leaves out, and when it does not start.
#include "pipeline/run_info.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions Options() {
  TrainOptions options;
  options.batch.source_tokens = 300;
  options.batch.target_tokens = 400;
  options.model.max_positions = 200;
  return options;
}

TEST(RunInfo, SaysWhatTheRunIs) {
  TrainOptions options = Options();
  options.model = {.encoder_layers = 2,
                   .decoder_layers = 1,
                   .d_model = 8,
                   .d_ff = 8,
                   .heads = 1,
                   .source_vocabulary = 50,
                   .target_vocabulary = 60,
                   .max_positions = 200};
  options.model.sharing = EmbeddingSharing::kNone;
  options.pipeline = {.stages = 2, .replicas = 2};
  options.stop.steps = 30;
  const ModelPlan plan = ModelPlan::Make(options.model);
  const PipelineLayout pipeline = MakePipelineLayout(plan, options.batch, options.pipeline, /*ranks=*/4).value();
  const RunInfo run = DescribeRun(options, plan, pipeline, /*threads=*/3, /*first_step=*/8);
  EXPECT_EQ(run.parameters, plan.ParameterElements());
  EXPECT_EQ(run.source_vocabulary, 50);
  EXPECT_EQ(run.target_vocabulary, 60);
  EXPECT_EQ(run.encoder_sublayers, 4);
  EXPECT_EQ(run.decoder_sublayers, 3);
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.stages, 2);
  EXPECT_EQ(run.replicas, 2);
  EXPECT_EQ(run.threads, 3);
  EXPECT_EQ(run.layout, absl::StrCat("1f1b, chunks 1, cut before sublayers [", pipeline.borders[1],
                                     "], outstanding sends 2, replicas together"));
  EXPECT_EQ(run.first_step, 8);
  EXPECT_EQ(run.total_steps, 30);
  PipelineLayout chosen = pipeline;
  chosen.recompute_every = 4;
  EXPECT_EQ(DescribeRun(options, plan, chosen, 3, 8).recompute_every, 4) << "what recompute_auto has chosen";
  ModelPlan speech = plan;
  speech.options.frame_width = 80;
  EXPECT_EQ(DescribeRun(options, speech, pipeline, 3, 8).frame_width, 80);
}

TEST(LeftOut, CountShareAndTheLimitsAreSaid) {
  EXPECT_EQ(DescribeLeftOut("training", 0, 345, Options()), "");
  EXPECT_EQ(DescribeLeftOut("training", 12, 345, Options()),
            "12 of 345 training samples (3.48%) are left out: a side is longer than batch.source_tokens = 300, "
            "batch.target_tokens = 400 or model.max_positions = 200");
  TrainOptions plain = Options();
  plain.model.encoder_layers = 0;
  const std::string said = DescribeLeftOut("validation", 1, 1000, plain);
  EXPECT_THAT(said, HasSubstr("1 of 1000 validation samples (0.1%)"));
  EXPECT_THAT(said, Not(HasSubstr("source_tokens"))) << "a language model has no source";
}

TEST(LeftOut, ARunThatWouldLeaveOutNearlyAllDoesNotStartUnlessTold) {
  TrainOptions options = Options();
  EXPECT_TRUE(CheckLeftOut(0, 0, options).ok());
  EXPECT_TRUE(CheckLeftOut(90, 100, options).ok()) << "as many as are allowed";
  const absl::Status refused = CheckLeftOut(91, 100, options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  for (const char* said :
       {"91 of 100 training samples (91%)", "batch.target_tokens = 400", "a share of 0.9", "raise"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(said));
  }
  options.max_left_out = 1;
  EXPECT_TRUE(CheckLeftOut(99, 100, options).ok());
  options.max_left_out = 0;
  EXPECT_TRUE(CheckLeftOut(0, 100, options).ok());
  EXPECT_FALSE(CheckLeftOut(1, 100, options).ok());
}

}  // namespace
}  // namespace hadal
