// The calls that a training rank makes are legal on this device. Kernels are empty and products of memory's old bytes.
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/gpu/api_replay.h"
#include "tests/gpu/recorded_api_calls.h"

namespace hadal::testing {
namespace {

TEST(ApiCallsTest, TheRecordedCallsAreLegal) { EXPECT_EQ(ReplayApiCalls(kRecordedApiCalls), absl::OkStatus()); }

}  // namespace
}  // namespace hadal::testing
