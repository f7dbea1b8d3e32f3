#include "runtime/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(Utf8, AcceptsTheEdgesOfEachLength) {
  for (const std::string text : {"", "abc", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                                 "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(ValidUtf8Prefix(text), text.size()) << text;
  }
  EXPECT_EQ(ValidUtf8Prefix(std::string_view("\0", 1)), 1u);
}

TEST(Utf8, RefusesWhatTheTableLeavesOut) {
  for (const std::string text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC2", "\xE2\x82", "\xF0\x9F\x98", "\xC2 ", "\xE2\x28\xA1"}) {
    EXPECT_EQ(ValidUtf8Prefix(text), 0u) << text;
  }
}

TEST(Utf8, EveryByteBehindTheFirstMustContinue) {
  for (const std::string text : {"\xC3\xA4", "\xE2\x96\x81", "\xF0\x9F\x98\x80"}) {
    for (size_t at = 1; at < text.size(); ++at) {
      for (const char bad : {'\0', 'a', '\x7F', '\xC0', '\xFF'}) {
        std::string altered = text + text;  // long enough for whoever does not look
        altered[at] = bad;
        EXPECT_EQ(ValidUtf8Prefix(altered), 0u) << text << " at " << at;
      }
    }
  }
}

TEST(Utf8, NamesTheFirstBadByte) {
  EXPECT_EQ(ValidUtf8Prefix("Stra\xC3\x9F"
                            "e \xFF"),
            8u);
  EXPECT_EQ(ValidUtf8Prefix("caf\xC3"), 3u);
}

}  // namespace
}  // namespace hadal
