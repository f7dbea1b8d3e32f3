#include "launch/thrown_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "runtime/comm/in_process_communicator.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

absl::Status Thrown(const auto& exception) {
  InProcessWorld world(1);
  return CatchErrors(world.communicator(0), [&]() -> absl::StatusOr<int> { throw exception; }).status();
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
  InProcessWorld world(1);
  const auto body = [](absl::StatusOr<int> value) { return [value] { return value; }; };
  EXPECT_EQ(*CatchErrors(world.communicator(0), body(5)), 5);
  EXPECT_EQ(CatchErrors(world.communicator(0), body(absl::AbortedError("own"))).status(), absl::AbortedError("own"));
  EXPECT_TRUE(world.communicator(0).Send("", 0, 0, 1).ok()) << "its communicator stays open";
}

// What the body has posted lies in memory that unwinding has given back: a peer's message must not go there.
TEST(ThrownError, TransfersAreTakenBack) {
  InProcessWorld world(2);
  int posted = 17;
  const absl::Status status = CatchErrors(world.communicator(1), [&]() -> absl::Status {
    EXPECT_TRUE(world.communicator(1).Receive(&posted, sizeof(posted), 0, 1).ok());
    throw std::bad_alloc();
  });
  EXPECT_FALSE(status.ok());
  const int sent = 4;
  const absl::StatusOr<CommRequest> request = world.communicator(0).Send(&sent, sizeof(sent), 1, 1);
  EXPECT_EQ(posted, 17);
}

}  // namespace
}  // namespace hadal
