#include "launch/transport_choice.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Three ranks, each with a GPU of its own and the same NCCL.
std::vector<DeviceFacts> GoodRanks() {
  std::vector<DeviceFacts> ranks;
  for (const char* gpu : {"GPU-a", "GPU-b", "GPU-c"}) ranks.push_back({.gpu = gpu, .nccl = 22809});
  return ranks;
}

// What keeps these ranks from NCCL: the same words for "auto", as a notice, and for "nccl", as an error.
void ExpectNoNccl(const std::vector<DeviceFacts>& ranks, const std::string& why) {
  const absl::StatusOr<TransportDecision> automatic = DecideTransport(Transport::kAuto, /*gpu=*/true, ranks);
  EXPECT_FALSE(automatic->nccl);
  EXPECT_EQ(automatic->notice, "ranks exchange data through pinned host memory and MPI, because " + why);
  const absl::Status asked = DecideTransport(Transport::kNccl, /*gpu=*/true, ranks).status();
  EXPECT_EQ(asked.code(), absl::StatusCode::kInvalidArgument) << asked;
  EXPECT_THAT(std::string(asked.message()), HasSubstr("pipeline.transport = \"nccl\": " + why));
}

TEST(TransportChoice, NcclWantsAGpuForEachRankAndOneVersion) {
  std::vector<DeviceFacts> ranks = GoodRanks();
  ranks[0].nccl_variables = "NCCL_DEBUG=INFO";
  const absl::StatusOr<TransportDecision> good = DecideTransport(Transport::kAuto, /*gpu=*/true, ranks);
  EXPECT_TRUE(good->nccl);
  EXPECT_THAT(good->notice, AllOf(HasSubstr("by NCCL 2.28.9"), HasSubstr("; set for it: NCCL_DEBUG=INFO")));
  ranks[2].gpu = "GPU-a";
  ExpectNoNccl(ranks, "ranks 0 and 2 share GPU-a");
  ranks = GoodRanks();
  ranks[1].nccl = 22304;
  ExpectNoNccl(ranks, "rank 0 has NCCL 2.28.9, rank 1 has 2.23.4");
  ranks[1] = {.gpu = "GPU-b", .why_no_nccl = "NCCL is not found"};
  ExpectNoNccl(ranks, "rank 1 has no NCCL: NCCL is not found");
}

TEST(TransportChoice, OnTheCpuOrAloneThereIsNothingToChoose) {
  const std::vector<DeviceFacts> ranks = GoodRanks();
  EXPECT_EQ(DecideTransport(Transport::kAuto, /*gpu=*/false, ranks)->notice, "");
  EXPECT_EQ(DecideTransport(Transport::kNccl, /*gpu=*/true, std::span(ranks).first(1))->nccl, false);
  EXPECT_EQ(DecideTransport(Transport::kHost, /*gpu=*/true, ranks)->nccl, false);
  const absl::Status no_gpu = DecideTransport(Transport::kNccl, /*gpu=*/false, ranks).status();
  EXPECT_EQ(no_gpu.code(), absl::StatusCode::kInvalidArgument) << no_gpu;
  EXPECT_THAT(std::string(no_gpu.message()), HasSubstr("needs GPUs"));
}

TEST(TransportChoice, NcclIsNotLookedForWhereItIsNotUsed) {
  for (DeviceFacts facts : {DeviceFacts{.why_none = "no driver"}, DeviceFacts{}}) {
    const bool cpu = !facts.why_none.empty();
    EXPECT_EQ(FindNccl(cpu ? Transport::kAuto : Transport::kHost, /*ranks=*/2, facts), nullptr);
    EXPECT_EQ(facts.why_no_nccl, "");
  }
}

// Slices of one GPU have identities of their own and one bus.
TEST(TransportChoice, NcclWantsABusForEachRank) {
  std::vector<DeviceFacts> ranks = GoodRanks();
  ranks[1].identity = "MIG-1";
  ranks[2].identity = "MIG-2";
  ranks[1].gpu = ranks[2].gpu = "GPU 0000:10:00.0 of node7";
  ExpectNoNccl(ranks, "ranks 1 and 2 share GPU 0000:10:00.0 of node7");
}

TEST(TransportChoice, VariablesThatNcclCouldHangWithAreRefusedByName) {
  const auto refusal = [](std::vector<const char*> environment) {
    environment.push_back(nullptr);
    return NcclRefusal(NcclSettings(environment.data(), {}));
  };
  const char* const good = "CUDA_DEVICE_MAX_CONNECTIONS=32";
  EXPECT_EQ(refusal({"PATH=/bin", good, "NCCL_MAX_CTAS=4", "NCCL_LAUNCH_ORDER_IMPLICIT=0"}), "");
  EXPECT_THAT(refusal({}), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS is not set, and NCCL needs 32"));
  EXPECT_THAT(refusal({"CUDA_DEVICE_MAX_CONNECTIONS=1"}), HasSubstr("is 1, and NCCL needs 32"));
  for (const char* bad : {"NCCL_MAX_CTAS=5", "NCCL_MIN_CTAS=8", "NCCL_MIN_NCHANNELS=16", "NCCL_MIN_P2P_NCHANNELS=32",
                          "NCCL_LAUNCH_ORDER_IMPLICIT=1", "NCCL_COMM_BLOCKING=1", "NCCL_MAX_CTAS=many"}) {
    EXPECT_THAT(refusal({good, bad}), AllOf(HasSubstr(bad), HasSubstr("unset it")));
  }
  std::vector<DeviceFacts> ranks = GoodRanks();
  ranks[1].nccl_refusal = "X is 1";
  for (const Transport asked : {Transport::kAuto, Transport::kNccl}) {
    const absl::Status status = DecideTransport(asked, /*gpu=*/true, ranks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(status.message(), "rank 1: X is 1, or set pipeline.transport = \"host\".");
  }
  EXPECT_TRUE(DecideTransport(Transport::kHost, /*gpu=*/true, ranks).ok());
  ranks[2].gpu = ranks[0].gpu;
  EXPECT_TRUE(DecideTransport(Transport::kAuto, /*gpu=*/true, ranks).ok()) << "without NCCL anyway";
}

TEST(TransportChoice, ListsTheUsersVariables) {
  const char* environment[] = {"PATH=/bin", "NCCL_TOKEN=secret", "NCCL_SOCKET_IFNAME=ib0", "NCCL_DEBUG=INFO", nullptr};
  EXPECT_EQ(NcclVariables(NcclSettings(environment, {})), "NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=ib0");
  EXPECT_EQ(NcclVariables({}), "");
}

TEST(TransportChoice, WhatNcclsFilesSetCountsBehindTheEnvironment) {
  const TemporaryDirectory directory;
  const std::vector<std::string> files = {directory / "user", directory / "missing", directory / "system"};
  SetContents(files[0], "# NCCL_MIN_CTAS=9\nNCCL_DEBUG=WARN\nNCCL_IB_HCA=mlx5\nno setting\n");
  SetContents(files[2], "NCCL_IB_HCA=mlx4\nNCCL_MAX_CTAS=16");
  const char* environment[] = {"CUDA_DEVICE_MAX_CONNECTIONS=32", "NCCL_DEBUG=INFO", nullptr, nullptr};
  const std::vector<NcclSetting> settings = NcclSettings(environment, files);
  EXPECT_EQ(NcclVariables(settings), "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5 NCCL_MAX_CTAS=16");
  EXPECT_THAT(NcclRefusal(settings),
              AllOf(HasSubstr("NCCL_MAX_CTAS=16 in " + files[2]), HasSubstr("set NCCL_MAX_CTAS=4 for the run")));
  environment[2] = "NCCL_MAX_CTAS=4";
  EXPECT_EQ(NcclRefusal(NcclSettings(environment, files)), "");
  SetContents(files[2], "CUDA_DEVICE_MAX_CONNECTIONS=32\n");  // CUDA reads no such file
  const char* without[] = {"PATH=/bin", nullptr};
  EXPECT_THAT(NcclRefusal(NcclSettings(without, files)), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS is not set"));
}

TEST(TransportChoice, NcclsOwnFileReplacesTheHomes) {
  ASSERT_EQ(setenv("NCCL_CONF_FILE", "/there/nccl.conf", 1), 0);
  EXPECT_THAT(NcclFiles(), ElementsAre("/there/nccl.conf", "/etc/nccl.conf"));
  ASSERT_EQ(setenv("NCCL_CONF_FILE", "", 1), 0);
  EXPECT_THAT(NcclFiles(), ElementsAre(EndsWith("/.nccl.conf"), "/etc/nccl.conf"));
  unsetenv("NCCL_CONF_FILE");
  EXPECT_THAT(NcclFiles(), ElementsAre(EndsWith("/.nccl.conf"), "/etc/nccl.conf"));
}

}  // namespace
}  // namespace hadal
