#include "runtime/crc32c.h"

#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace hadal {
namespace {

uint32_t OfString(std::string_view text) { return Crc32c(text.data(), text.size()); }

// RFC 3720, appendix B.4, and the catalogue's check value.
TEST(Crc32cTest, PublishedValues) {
  EXPECT_EQ(OfString("123456789"), 0xE3069283u);
  EXPECT_EQ(OfString(""), 0u);
  EXPECT_EQ(OfString(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32)),
            0x8A9136AAu);
  const std::vector<std::byte> ones(32, std::byte{0xFF});
  EXPECT_EQ(Crc32c(ones), 0x62A8AB43u);
  std::vector<std::byte> ascending(32);
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(ascending), 0x46DD794Eu);
}

TEST(Crc32cTest, TableEqualsInstructionAtEveryLengthAndOffset) {
  std::vector<std::byte> data(300);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * i * 31 + 7);
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t length = 0; offset + length <= data.size(); ++length) {
      const std::span<const std::byte> piece(data.data() + offset, length);
      ASSERT_EQ(Crc32c(piece), Crc32cPortable(piece)) << offset << " " << length;
    }
  }
}

TEST(Crc32cTest, PiecesEqualTheWhole) {
  std::vector<std::byte> data(100);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37);
  const std::span<const std::byte> whole(data);
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    EXPECT_EQ(Crc32c(whole.subspan(cut), Crc32c(whole.first(cut))), Crc32c(whole));
    EXPECT_EQ(Crc32cPortable(whole.subspan(cut), Crc32cPortable(whole.first(cut))), Crc32c(whole));
  }
}

}  // namespace
}  // namespace hadal
