// The replay of recorded calls, on the emulated device: it makes these calls and no others, and names one that fails.
#include "tests/gpu/api_replay.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/recorded_api_calls.h"
#include "tests/support/api_recording.h"
#include "tests/support/emulated_cuda.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ApiReplayTest, MakesTheRecordedCalls) {
  for (const char* const function :
       {"cudaStreamWaitEvent", "cudaEventRecord", "cudaEventQuery", "cudaHostAlloc", "cudaMemcpyAsync h",
        "cudaMemcpyAsync d", "cudaMemcpyAsync p", "cudaStreamBeginCapture", "cudaGraphLaunch", "launch",
        "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul", "cudaFree"}) {
    EXPECT_THAT(kRecordedApiCalls, HasSubstr(std::string("\n") + function)) << "no part of the recorded run";
  }
  const ApiRecording recording;
  ASSERT_EQ(ReplayApiCalls(kRecordedApiCalls), absl::OkStatus());
  EXPECT_EQ(recording.text(), kRecordedApiCalls);
  EXPECT_EQ(EmulatedCuda::Instance().used_bytes(), 0);
  EXPECT_EQ(EmulatedCuda::Instance().used_host_bytes(), 0);
  EXPECT_EQ(EmulatedCuda::Instance().graphs(), 0);
}

// The first line of the recording that contains `call`.
std::string LineWith(const std::string& call) {
  const std::string text = kRecordedApiCalls;
  const size_t at = text.rfind('\n', text.find(call)) + 1;
  return text.substr(at, text.find('\n', at) - at);
}

TEST(ApiReplayTest, NamesEachDifferentIllegalCallOnceAndGoesOn) {
  const std::string begin = LineWith("cudaStreamBeginCapture");
  const std::string stream = std::vector<std::string>(absl::StrSplit(begin, ' '))[1];
  const std::string waits = "cudaStreamSynchronize " + stream, asks = "cudaStreamQuery " + stream;
  // Memory that is refused, and a copy to it, which is left out.
  const std::string calls = absl::StrReplaceAll(
      kRecordedApiCalls, {{begin, absl::StrCat("cudaMalloc d9999 ", int64_t{1} << 60, "\ncudaMemsetAsync d9999+0 0 8 ",
                                               stream, "\n", begin, "\n", waits, "\n", waits, "\n", asks)}});
  const std::string message(ReplayApiCalls(calls).message());
  const std::string refused = ": operation not permitted when stream is capturing";
  EXPECT_THAT(message,
              AllOf(StartsWith("3 different calls are refused:\nline "), HasSubstr(", " + waits + refused),
                    HasSubstr(", " + asks + refused), HasSubstr("cudaMalloc d9999"), Not(HasSubstr("Memset"))));
  EXPECT_EQ(message.find(waits), message.rfind(waits));
  EXPECT_EQ(EmulatedCuda::Instance().used_bytes(), 0) << "the calls behind them were made";
}

}  // namespace
}  // namespace hadal::testing
