#include "launch/job/transport_choice.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);

TEST(TransportChoice, NcclWantsAGpuForEachRankAndOneVersion) {
  const std::vector<TransportFacts> good = {{"GPU-a", 22809, ""}, {"GPU-b", 22809, ""}, {"GPU-c", 22809, ""}};
  EXPECT_EQ(WhyNoNccl(good), "");
  std::vector<TransportFacts> shared = good;
  shared[2].device = "GPU-a";
  EXPECT_EQ(WhyNoNccl(shared), "ranks 0 and 2 share GPU-a");
  std::vector<TransportFacts> older = good;
  older[1].nccl = 22304;
  EXPECT_EQ(WhyNoNccl(older), "rank 0 has NCCL 2.28.9, rank 1 has 2.23.4");
  std::vector<TransportFacts> without = good;
  without[1] = {"GPU-b", 0, "NCCL is not found"};
  EXPECT_EQ(WhyNoNccl(without), "rank 1 has no NCCL: NCCL is not found");
}

TEST(TransportChoice, ListsTheUsersVariables) {
  const char* environment[] = {"PATH=/bin", "NCCL_SOCKET_IFNAME=ib0", "NCCL_DEBUG=INFO", nullptr};
  EXPECT_EQ(NcclVariables(environment), "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=ib0");
  EXPECT_EQ(NcclVariables(environment + 3), "");
}

// Ranks that share a device, whether or not the build has NCCL: the host serves, and the first rank says why.
TEST(TransportChoice, RanksOnOneDeviceGoThroughTheHost) {
  const std::string device = "GPU-a";
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    Collectives collectives(communicator, kHang);
    HADAL_ASSIGN_OR_RETURN(const ChosenTransport automatic,
                           ChooseTransport(Transport::kAuto, device, communicator, collectives));
    EXPECT_EQ(automatic.nccl, nullptr);
    EXPECT_EQ(automatic.notice.empty(), communicator.rank() != 0);
    if (communicator.rank() == 0) {
      EXPECT_THAT(automatic.notice, AllOf(HasSubstr("pinned host memory"), HasSubstr("because ")));
    }
    HADAL_ASSIGN_OR_RETURN(const ChosenTransport cpu, ChooseTransport(Transport::kAuto, "", communicator, collectives));
    EXPECT_EQ(cpu.notice, "");
    const absl::Status no_gpu = ChooseTransport(Transport::kNccl, "", communicator, collectives).status();
    EXPECT_EQ(no_gpu.code(), absl::StatusCode::kInvalidArgument) << no_gpu;
    EXPECT_THAT(std::string(no_gpu.message()), HasSubstr("needs GPUs"));
    const absl::Status asked = ChooseTransport(Transport::kNccl, device, communicator, collectives).status();
    EXPECT_EQ(asked.code(), absl::StatusCode::kInvalidArgument) << asked;
    EXPECT_THAT(std::string(asked.message()), HasSubstr("pipeline.transport = \"nccl\""));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace hadal
