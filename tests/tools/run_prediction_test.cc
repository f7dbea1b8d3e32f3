#include "tools/run_prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/report.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

// Of the default 6L-6L model: every sublayer 1 ms forward and 2 ms back.
std::string WriteProfile(const std::string& directory) {
  std::string text =
      "processor: \"a processor\" gflops: 100 process_bytes: 50000000\n"
      "model { d_model: 512 d_ff: 2048 heads: 8 source_vocabulary: 100 target_vocabulary: 100 sublayers: 33 "
      "parameters: 1 }\n"
      "capacities { source_tokens: 1024 target_tokens: 1024 source_rows: 1000 target_rows: 1000\n";
  for (const char* kind : {"source_embedding", "encoder_self_attention", "encoder_feed_forward", "target_embedding",
                           "decoder_self_attention", "cross_attention", "decoder_feed_forward", "output_head"}) {
    absl::StrAppend(&text, "  sublayers { kind: \"", kind, "\" forward_ms: 1 backward_ms: 2 }\n");
  }
  const std::string path = JoinPath(directory, "profile.textproto");
  std::ofstream(path) << text << "}\n";
  return path;
}

TEST(RunPrediction, StandsBesideWhatWasMeasured) {
  const TemporaryDirectory directory;
  const std::string run = JoinPath(directory.path(), "run");
  WriteRecordedRun(run, {.tokens = 8 * 1024, .stages = {{.forward_seconds = 0.3, .backward_seconds = 0.6}}});
  const auto report = MakeReport({run}, WriteProfile(directory.path()));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->predictions.size(), 1u);
  const RunPrediction& prediction = report->predictions.front();
  const double step = 8 * (2 * 6 + 3 * 6 + 3) * 0.003;  // micro-batches, sublayers, seconds
  EXPECT_NEAR(prediction.layout.step_seconds, step, 1e-9);
  EXPECT_NEAR(prediction.measured_seconds, 0.9, 1e-9);
  EXPECT_NEAR(prediction.StepError(), step / 0.9 - 1, 1e-9);
  EXPECT_NEAR(prediction.roofline_share, step / 0.9, 1e-9);
  EXPECT_GT(prediction.utilisation, 0);
  EXPECT_GT(prediction.predicted_bytes, 50000000);
  EXPECT_THAT(ReportToMarkdown(*report), HasSubstr("| 792.0 ms | 900.0 ms | -12.0% |"));
  EXPECT_THAT(ReportToHtml(*report), HasSubstr("Predicted and measured"));
  const auto json = nlohmann::json::parse(ReportToJson(*report));
  EXPECT_NEAR(json["runs"][0]["prediction"]["predicted_step_seconds"].get<double>(), step, 1e-9);
}

TEST(RunPrediction, WithoutAProfileThereIsNone) {
  const TemporaryDirectory directory;
  WriteRecordedRun(directory.path(), {.stages = {{.forward_seconds = 1}}});
  const auto report = MakeReport({directory.path()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->predictions.empty());
  EXPECT_EQ(ReportToHtml(*report).find("Predicted and measured"), std::string::npos);
  EXPECT_FALSE(MakeReport({directory.path()}, "no such file").ok());
}

}  // namespace
}  // namespace hadal
