#include "runtime/machine.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "runtime/crc32c.h"
#include "runtime/logged_environment.h"
#include "runtime/rank_facts.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HostMemory, ReadsALineOfMemInfo) {
  constexpr std::string_view kText =
      "MemTotal:       1000 kB\nMemAvailable:    600 kB\nMemAvailableX:   1 kB\nOdd: 7\n";
  EXPECT_EQ(MemInfoBytes(kText, "MemAvailable"), 600 * 1024);
  EXPECT_EQ(MemInfoBytes(kText, "MemTotal"), 1000 * 1024);
  EXPECT_EQ(MemInfoBytes(kText, "Odd"), std::nullopt);
  EXPECT_EQ(MemInfoBytes(kText, "Mem"), std::nullopt);
  EXPECT_EQ(MemInfoBytes("", "MemTotal"), std::nullopt);
}

TEST(HostMemory, ThisHostHasSome) {
  const std::optional<int64_t> bytes = AvailableHostMemoryBytes();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_GT(*bytes, 1 << 20);
}

// A job's share of a large host, or a host that others have filled.
TEST(HostMemory, WhatTheKernelAndTheControlGroupsBothLeaveIsAvailable) {
  const TemporaryDirectory mounts;
  std::filesystem::create_directories(mounts / "self");
  std::filesystem::create_directories(mounts / "job");
  SetContents(mounts / "job/memory.max", "5000\n");
  SetContents(mounts / "job/memory.current", "904\n");
  const auto available = [&mounts](const std::string& membership, const std::string& mem_info) {
    SetContents(mounts / "self/cgroup", membership);
    SetContents(mounts / "meminfo", mem_info);
    return AvailableHostMemoryBytes(mounts.path(), mounts.path());
  };
  EXPECT_EQ(available("0::/job\n", "MemAvailable: 5 kB\n"), 4096);
  EXPECT_EQ(available("0::/job\n", "MemAvailable: 3 kB\n"), 3072);
  EXPECT_EQ(available("0::/job\n", ""), 4096);
  EXPECT_EQ(available("", "MemAvailable: 5 kB\n"), 5120);
  EXPECT_EQ(available("", ""), std::nullopt);
}

TEST(HostMemory, WhatIsTouchedIsHeld) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = HeldBytes();
  EXPECT_GT(before, 0);
  std::vector<char> memory(kBytes, 1);
  EXPECT_GT(memory[kBytes / 2], 0);
  EXPECT_GE(HeldBytes(), before + kBytes * 9 / 10);
  EXPECT_GE(PeakResidentBytes(), HeldBytes() * 9 / 10);
}

// As MPI's buffers between the ranks of a host.
TEST(HostMemory, SharedMemoryIsHeldToo) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  const int64_t before = HeldBytes();
  void* const shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memset(shared, 1, kBytes);
  EXPECT_GE(HeldBytes(), before + kBytes * 9 / 10);
  munmap(shared, kBytes);
}

// Blocks too small for mappings of their own, freed but for the last, which keeps the heap from shrinking by itself.
TEST(HostMemory, HolesOfTheHeapAreGivenBack) {
  constexpr size_t kBlockBytes = 100'000;
  std::vector<std::vector<char>> blocks(300, std::vector<char>(kBlockBytes, 1));
  for (size_t i = 0; i + 1 < blocks.size(); ++i) std::vector<char>().swap(blocks[i]);
  const int64_t before = HeldBytes();
  ReturnFreeMemory();
  EXPECT_LT(HeldBytes(), before - int64_t{20} * 1'000'000);
  EXPECT_EQ(blocks.back()[0], 1);
}

class ControlGroup : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(mount_ / file).parent_path());
    std::ofstream(mount_ / file) << text;
  }
  std::optional<int64_t> Bytes(const std::string& membership) { return ControlGroupBytes(membership, mount_.path()); }

  TemporaryDirectory mount_;
};

TEST_F(ControlGroup, WhatNobodyLimitsHasNoLimit) {
  Write("a/memory.max", "max\n");
  Write("a/memory.current", "400\n");
  EXPECT_EQ(Bytes("0::/a\n"), std::nullopt);
  EXPECT_EQ(Bytes("0::/elsewhere\n"), std::nullopt);
  EXPECT_EQ(Bytes(""), std::nullopt);
  EXPECT_EQ(Bytes("nonsense\n0:\n"), std::nullopt);
}

TEST_F(ControlGroup, IsWhatIsLeftOfTheLimit) {
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "400\n");
  EXPECT_EQ(Bytes("0::/a\n"), 600);
  Write("a/memory.current", "1400\n");
  EXPECT_EQ(Bytes("0::/a\n"), 0);
}

// A Slurm job's limit lies above its steps and tasks.
TEST_F(ControlGroup, TheTightestGroupAboveCounts) {
  Write("slice/job_7/step_0/task_0/memory.max", "max\n");
  Write("slice/job_7/step_0/task_0/memory.current", "100\n");
  Write("slice/job_7/memory.max", "1000\n");
  Write("slice/job_7/memory.current", "700\n");
  Write("slice/memory.max", "5000\n");
  Write("slice/memory.current", "800\n");
  EXPECT_EQ(Bytes("0::/slice/job_7/step_0/task_0\n"), 300);
  Write("slice/memory.current", "4900\n");
  EXPECT_EQ(Bytes("0::/slice/job_7/step_0/task_0\n"), 100);
  Write("memory.max", "50\n");
  Write("memory.current", "20\n");
  EXPECT_EQ(Bytes("0::/slice/job_7/step_0/task_0\n"), 30) << "a container's is the topmost";
}

TEST_F(ControlGroup, IdlePagesOfFilesAreFree) {
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "900\n");
  Write("a/memory.stat", "anon 300\nfile 600\nactive_file 100\ninactive_file 500\n");
  EXPECT_EQ(Bytes("0::/a\n"), 600);
  Write("a/memory.current", "400\n");
  EXPECT_EQ(Bytes("0::/a\n"), 1000) << "no more than the limit";
}

TEST_F(ControlGroup, NamesMayHaveColons) {
  Write("user:1/memory.max", "1000\n");
  Write("user:1/memory.current", "400\n");
  EXPECT_EQ(Bytes("0::/user:1\n"), 600);
}

TEST_F(ControlGroup, VersionOneHasOtherNames) {
  Write("memory/slurm/job_7/memory.limit_in_bytes", "1000\n");
  Write("memory/slurm/job_7/memory.usage_in_bytes", "400\n");
  Write("memory/slurm/job_7/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("memory/memory.usage_in_bytes", "4000\n");
  EXPECT_EQ(Bytes("12:cpu,cpuacct:/x\n7:memory:/slurm/job_7\n0::/unused\n"), 650);
}

TEST_F(ControlGroup, TheTightestQuotaOfCpusCounts) {
  EXPECT_EQ(ControlGroupCpus("0::/docker/a\n", mount_.path()), std::nullopt);
  Write("docker/a/cpu.max", "max 100000\n");
  EXPECT_EQ(ControlGroupCpus("0::/docker/a\n", mount_.path()), std::nullopt);
  Write("docker/cpu.max", "250000 100000\n");
  EXPECT_EQ(ControlGroupCpus("0::/docker/a\n", mount_.path()), 2.5);
  Write("docker/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(ControlGroupCpus("0::/docker/a\n", mount_.path()), 0.5);

  Write("cpu/x/cpu.cfs_quota_us", "-1\n");
  Write("cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ControlGroupCpus("4:cpu,cpuacct:/x\n", mount_.path()), std::nullopt);
  Write("cpu/x/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(ControlGroupCpus("4:cpu,cpuacct:/x\n", mount_.path()), 4);
}

TEST(CpuShare, IsOfTheMaskAndOfTheQuota) {
  EXPECT_EQ(CpuShare(8, 3, std::nullopt, 3), 2);
  EXPECT_EQ(CpuShare(2, 3, std::nullopt, 3), 1);
  EXPECT_EQ(CpuShare(8, 1, 2.5, 1), 2);
  EXPECT_EQ(CpuShare(8, 1, 0.5, 1), 1);
  EXPECT_EQ(CpuShare(4, 2, 8.0, 4), 2);
  EXPECT_EQ(CpuShare(4, 1, 8.0, 4), 2);
  EXPECT_EQ(CpuShare(4, 1, 1e13, 1), 4);
  EXPECT_EQ(ProcessCpus(/*sharing_cpus=*/1 << 20, /*sharing_quota=*/1), 1);
}

TEST(RankFacts, SurviveTheTrip) {
  setenv("OMPI_COMM_WORLD_RANK", "3", /*overwrite=*/1);
  RankFacts facts = GatherFacts(3, 2);
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(facts.environment_rank, "OMPI_COMM_WORLD_RANK=3");
  EXPECT_EQ(facts.rank, 3);
  EXPECT_EQ(facts.threads, 2);
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.cpus.empty());
  const std::string binary = Contents("/proc/self/exe");
  EXPECT_EQ(facts.binary_crc32c, Crc32c(binary.data(), binary.size()));
  EXPECT_GT(facts.available_bytes, 0);
  facts.local_rank = 1;  // from here on what is not known here, or unlimited
  facts.ranks_on_host = 4;
  facts.instruction_sets = 5;
  facts.open_files_limit = 6;
  facts.memory_limit_bytes = 7;
  facts.shared_memory_bytes = 8;
  const auto back = FactsFromJson(FactsToJson(facts));
  EXPECT_TRUE(*back == facts) << FactsToJson(*back);
  EXPECT_FALSE(FactsFromJson("{").ok());
}

TEST(RankFacts, LimitsAreThoseThatHold) {
  rlimit files = {}, memory = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files) + getrlimit(RLIMIT_AS, &memory), 0);
  rlimit fewer = files, less = memory;
  --fewer.rlim_cur;
  less.rlim_cur = std::min(memory.rlim_max, rlim_t{1} << 60);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &fewer) + setrlimit(RLIMIT_AS, &less), 0);
  const RankFacts facts = GatherFacts(0, 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files) + setrlimit(RLIMIT_AS, &memory), 0);
  EXPECT_EQ(facts.open_files_limit, static_cast<int64_t>(fewer.rlim_cur));
  EXPECT_EQ(facts.memory_limit_bytes, static_cast<int64_t>(less.rlim_cur));
}

TEST(RankFacts, CpuListsAsTheKernelWritesThem) {
  EXPECT_EQ(CpuList({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(CpuList({5}), "5");
  EXPECT_EQ(CpuList({}), "");
}

TEST(DescribeRanks, NamesTheHostsAndSaysAllOfThree) {
  const std::vector<std::string> three = {"n1", "n1", "n2"}, two = {"n1", "n1"};
  EXPECT_EQ(DescribeRanks({0, 1, 2}, three), "all 3 ranks");
  EXPECT_EQ(DescribeRanks({0, 1}, three), "ranks 0, 1 (host n1)");
  EXPECT_EQ(DescribeRanks({1, 2}, three), "ranks 1, 2 (hosts n1, n2)");
  EXPECT_EQ(DescribeRanks({2}, three), "rank 2 (host n2)");
  EXPECT_EQ(DescribeRanks({0, 1}, two), "ranks 0, 1 (host n1)");
}

TEST(LoggedEnvironment, OnlyListedVariablesByTheirWholeName) {
  const char* const environment[] = {"OMPI_MCA_btl=self,\nvader", "NCCL_DEBUG=\033[2JINFO", "SLURM_JOB_ID=17", nullptr};
  EXPECT_THAT(LoggedEnvironment(environment),
              ElementsAre("NCCL_DEBUG=\\x1b[2JINFO", "OMPI_MCA_btl=self, vader", "SLURM_JOB_ID=17"));
  for (const char* prefix :
       {"CUDA_", "HADAL_", "NCCL_", "NCCL_DEBUG", "OMPI_MCA_", "OMPI_MCA_btl_", "SLURM_", "UCX_", "AWS_SECRET_"}) {
    const std::string planted = std::string(prefix) + "TOKEN=no";
    const char* const environment[] = {planted.c_str(), nullptr};
    EXPECT_THAT(LoggedEnvironment(environment), IsEmpty()) << planted;
  }
}

}  // namespace
}  // namespace hadal
