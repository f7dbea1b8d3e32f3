#include "runtime/bytes.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace hadal
