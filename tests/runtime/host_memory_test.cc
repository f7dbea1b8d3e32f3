#include "runtime/host_memory.h"

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

TEST(HostMemory, AControlGroupWithoutALimitSaysNothing) {
  EXPECT_EQ(BytesBelowLimit("1000\n", "400\n"), 600);
  EXPECT_EQ(BytesBelowLimit("1000\n", "1400\n"), 0);
  EXPECT_EQ(BytesBelowLimit("max\n", "400\n"), std::nullopt);
  EXPECT_EQ(BytesBelowLimit("", ""), std::nullopt);
}

TEST(HostMemory, ThisHostHasSome) {
  const std::optional<int64_t> bytes = AvailableHostMemoryBytes();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_GT(*bytes, 1 << 20);
}

}  // namespace
}  // namespace hadal
