#include "runtime/host_memory.h"

#include <vector>

#include "gtest/gtest.h"

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

TEST(HostMemory, WhatIsTouchedIsHeld) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = HeldBytes();
  EXPECT_GT(before, 0);
  std::vector<char> memory(kBytes, 1);
  EXPECT_GT(memory[kBytes / 2], 0);
  EXPECT_GE(HeldBytes(), before + kBytes * 9 / 10);
  EXPECT_GE(PeakResidentBytes(), HeldBytes() * 9 / 10);
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
