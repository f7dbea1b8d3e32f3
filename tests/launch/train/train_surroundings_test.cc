// The steps of --trace. BLEU at validations is tested by whole runs (train_command_test.sh).
#include "launch/train/train_surroundings.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TraceRequestTest : public ::testing::Test {
 protected:
  absl::StatusOr<TraceRequest> Request(const std::string& trace, const StopOptions& stop) {
    arguments_.trace = trace;
    return MakeTraceRequest(arguments_, stop, sinks_);
  }

  const TemporaryDirectory directory_;
  TrainArguments arguments_;
  TrainingSinks sinks_{{.rank = 0, .ranks = 1}, directory_ / "run"};
};

TEST_F(TraceRequestTest, NoneUnlessAsked) { EXPECT_FALSE(Request("", {.steps = 10})->wanted()); }

TEST_F(TraceRequestTest, UpToTheLastStepOfTheRun) {
  const absl::StatusOr<TraceRequest> request = Request("steps=7-9", {.steps = 10});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->first_step, 7);
  EXPECT_EQ(request->last_step, 9);
  EXPECT_TRUE(Request("steps=7-1000", {.minutes = 1}).ok()) << "nobody knows its last step";
}

TEST_F(TraceRequestTest, NotBeyondIt) {
  const absl::Status status = Request("steps=7-10", {.steps = 10}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--trace steps=7-10"), HasSubstr("last step is 9")));
  EXPECT_EQ(Request("steps", {.steps = 10}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hadal
