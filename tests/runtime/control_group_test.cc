#include "runtime/control_group.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "runtime/process_cpus.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

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
}

TEST_F(ControlGroup, IdlePagesOfFilesAreFree) {
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "900\n");
  Write("a/memory.stat", "anon 300\nfile 600\nactive_file 100\ninactive_file 500\n");
  EXPECT_EQ(Bytes("0::/a\n"), 600);
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
}

}  // namespace
}  // namespace hadal
