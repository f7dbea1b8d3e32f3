#include "runtime/host_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

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

}  // namespace
}  // namespace hadal
