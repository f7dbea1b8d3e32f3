#include "runtime/bytes.h"

#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/crc32c.h"

namespace hadal {
namespace {

TEST(Bytes, AValueIsItsBytesFromTheLowest) {
  std::string bytes = "x";
  AppendValue(uint32_t{0x01020304}, bytes);
  EXPECT_EQ(bytes, "x\x04\x03\x02\x01");
  EXPECT_EQ(AsBytes(std::vector<uint16_t>{0x4142, 0x4344}), "BADC");
  EXPECT_EQ(AsBytes(std::vector<double>()), "");
}

TEST(Bytes, AListIsItsLengthAndItsEntries) {
  std::string bytes;
  AppendList(std::string_view("ab"), bytes);
  EXPECT_EQ(bytes, std::string("\2\0\0\0\0\0\0\0ab", 10));
}

struct Written {
  std::string text = "hadal";
  std::vector<float> values = {1, -0.0f, 2.5f};
  int64_t number = -7;
  std::vector<int32_t> none;
};

std::string Write(const Written& from) {
  std::string bytes;
  AppendList(from.text, bytes);
  AppendList(from.values, bytes);
  AppendValue(from.number, bytes);
  AppendList(from.none, bytes);
  return bytes;
}

bool Read(std::string_view bytes, Written& to) {
  return TakeList(bytes, to.text) && TakeList(bytes, to.values) && TakeValue(bytes, to.number) &&
         TakeList(bytes, to.none) && bytes.empty();
}

TEST(Bytes, ComeBackAsTheyWere) {
  const Written from;
  Written to{.text = "", .values = {}, .number = 0, .none = {1, 2}};
  ASSERT_TRUE(Read(Write(from), to));
  EXPECT_EQ(to.text, from.text);
  EXPECT_EQ(AsBytes(to.values), AsBytes(from.values));
  EXPECT_EQ(to.number, from.number);
  EXPECT_TRUE(to.none.empty());
}

TEST(Bytes, CutAnywhereTheyAreRefused) {
  const std::string bytes = Write({});
  for (size_t length = 0; length < bytes.size(); ++length) {
    Written to;
    EXPECT_FALSE(Read(std::string_view(bytes).substr(0, length), to)) << length;
  }
}

// Numbers that no memory could hold, and such whose product with an entry's size overflows to something small.
TEST(Bytes, ACountOfMoreThanThereIsMakesNothing) {
  for (const uint64_t count : {uint64_t{3}, uint64_t{1} << 40, uint64_t{1} << 62, ~uint64_t{0}}) {
    std::string bytes;
    AppendValue(count, bytes);
    bytes += "12345678";
    std::string_view in = bytes;
    std::vector<int32_t> values;
    EXPECT_FALSE(TakeList(in, values)) << count;
    EXPECT_TRUE(values.empty());
  }
}

TEST(Bytes, ValuesAreTakenAsManyAsAreWanted) {
  std::string_view in = "abcd";
  std::vector<char> two(2), three(3), none;
  EXPECT_TRUE(TakeValues(in, std::span(two)));
  EXPECT_EQ(AsBytes(two), "ab");
  EXPECT_FALSE(TakeValues(in, std::span(three)));
  EXPECT_TRUE(TakeValues(in, std::span(none)));
  EXPECT_EQ(in, "cd");
}

TEST(Bytes, ARecordIsItsFieldsBehindEachOther) {
  Written record{.text = "x", .values = {3}, .number = 9};
  const auto fields = [](Written& of) { return std::tie(of.text, of.values, of.number, of.none); };
  std::string bytes;
  AppendFields(fields(record), bytes);
  EXPECT_EQ(bytes, Write(record));
  Written back;
  std::string_view in = bytes;
  EXPECT_TRUE(TakeFields(in, fields(back)) && in.empty());
  EXPECT_EQ(Write(back), bytes);
  in = std::string_view(bytes).substr(0, bytes.size() - 1);
  EXPECT_FALSE(TakeFields(in, fields(back)));
}

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
