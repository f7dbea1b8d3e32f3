#include "runtime/text.h"

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(Printable, KeepsTextAndEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("two lines\n\tgrün 猫 ½\u00a0"), "two lines\n\tgrün 猫 ½\u00a0");
  EXPECT_EQ(Printable("a\x1b[2Jb\r\x7f"), "a\\x1b[2Jb\\x0d\\x7f");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m")
      << "the one-byte escape sequence, as UTF-8";
  EXPECT_EQ(Printable("\x9B"
                      "31m\xFFü\xC3"),
            "\\x9b31m\\xffü\\xc3")
      << "not UTF-8";
  EXPECT_EQ(Printable(std::string("\0", 1)), "\\x00");
}

TEST(Printable, AMessageDoesNotQuoteAMegabyte) {
  const std::string word(1000, 'x');
  EXPECT_EQ(PrintableMessage("a " + word + "\nb"), "a " + word + "\nb");
  EXPECT_EQ(PrintableMessage("a " + word + "x  b\x1b"), "a " + std::string(100, 'x') + "… (1001 bytes)  b\\x1b");
  std::string words = "begin ";
  for (int i = 0; i < 1000; ++i) words += "ü ";
  const std::string cut = PrintableMessage("line 1\n" + words + "end\nline 3");
  EXPECT_THAT(cut, AllOf(StartsWith("line 1\nbegin ü"), HasSubstr(" … (3009 bytes) … "), EndsWith("ü end\nline 3")));
  EXPECT_LT(cut.size(), 1500u);
  EXPECT_LT(PrintableMessage(std::string(900, '\0')).size(), 200u) << "of the text as it is printed";
}

TEST(Printable, AStreamPassesLinesOn) {
  std::ostringstream out;
  {
    PrintableBuffer buffer(out);
    std::ostream stream(&buffer);
    stream << "gr" << '\xC3' << '\xBC' << "n\nrest\x1b";
    EXPECT_EQ(out.str(), "grün\n");
  }
  EXPECT_EQ(out.str(), "grün\nrest\\x1b");
}

TEST(Printable, AStreamReportsThatNothingCanBeWritten) {
  std::ostringstream full;
  full.setstate(std::ios_base::badbit);
  PrintableBuffer buffer(full);
  std::ostream lines(&buffer), flushed(&buffer);
  EXPECT_TRUE((lines << "a line\n").bad());
  EXPECT_TRUE(flushed.flush().bad());
}

TEST(ReadLine, IsGetlineForEveryLengthAndBounded) {
  std::string text;
  for (const size_t length : {0, 1, 4094, 4095, 4096, 10'000, 8190, 0}) text += std::string(length, 'x') + "\n";
  for (const std::string& all : {text, text + "last", std::string(), std::string("\n")}) {
    std::istringstream expected(all), in(all);
    std::string a, b;
    while (std::getline(expected, a)) {
      ASSERT_TRUE(ReadLine(in, b));
      EXPECT_EQ(a, b);
    }
    EXPECT_FALSE(ReadLine(in, b));
    EXPECT_FALSE(in.bad());
  }
  std::ifstream endless("/dev/zero");
  std::string line;
  EXPECT_FALSE(ReadLine(endless, line));
  EXPECT_TRUE(endless.bad());
  EXPECT_EQ(ReadLineError("zeros", 0, line).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ReadLineError("zeros", 0, line).message()), ::testing::HasSubstr("zeros:1: has more than"));
  EXPECT_THAT(std::string(ReadLineError("mac", 1, "a\rb\r").message()),
              HasSubstr("mac:2: cannot be read; do its lines"));
}

}  // namespace
}  // namespace hadal
