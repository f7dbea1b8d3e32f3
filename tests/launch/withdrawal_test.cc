#include "launch/withdrawal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/comm/in_process_communicator.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

TEST(Withdrawal, WhatIsNotThrownIsTheBodys) {
  InProcessWorld world(1);
  const auto body = [](absl::StatusOr<int> value) { return [value] { return value; }; };
  EXPECT_EQ(*WithdrawOnException(world.communicator(0), body(5)), 5);
  EXPECT_EQ(WithdrawOnException(world.communicator(0), body(absl::AbortedError("own"))).status(),
            absl::AbortedError("own"));
  EXPECT_TRUE(world.communicator(0).Send("", 0, 0, 1).ok()) << "its communicator stays open";
}

// What the body has posted lies in memory that unwinding has given back: a peer's message must not go there.
TEST(Withdrawal, TransfersAreTakenBack) {
  InProcessWorld world(2);
  int posted = 17;
  const absl::Status status = WithdrawOnException(world.communicator(1), [&]() -> absl::Status {
    EXPECT_TRUE(world.communicator(1).Receive(&posted, sizeof(posted), 0, 1).ok());
    throw std::bad_alloc();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not enough memory"));
  const int sent = 4;
  const absl::StatusOr<CommRequest> request = world.communicator(0).Send(&sent, sizeof(sent), 1, 1);
  EXPECT_EQ(posted, 17);
}

}  // namespace
}  // namespace hadal
