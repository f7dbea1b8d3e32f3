#include "runtime/thrown_error.h"

#include <gmock/gmock.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

absl::Status Thrown(const auto& exception) {
  return CatchExceptions([&]() -> absl::StatusOr<int> { throw exception; }).status();
}

TEST(ThrownError, BecomesAnErrorWithWords) {
  EXPECT_EQ(Thrown(std::bad_alloc()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Thrown(std::bad_alloc()).message()), HasSubstr("not enough memory"));
  const absl::Status refused =
      Thrown(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ulimit -u"));
  EXPECT_EQ(Thrown(std::out_of_range("seven")).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(Thrown(std::out_of_range("seven")).message()), HasSubstr("seven"));
  EXPECT_EQ(Thrown(7).code(), absl::StatusCode::kInternal);
}

TEST(ThrownError, WhatIsNotThrownIsTheBodys) {
  const auto body = [](absl::StatusOr<int> value) { return [value] { return value; }; };
  EXPECT_EQ(*CatchExceptions(body(5)), 5);
  EXPECT_EQ(CatchExceptions(body(absl::AbortedError("own"))).status(), absl::AbortedError("own"));
}

}  // namespace
}  // namespace hadal
