#include "runtime/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Printable, KeepsTextAndEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("two lines\n\tgrün 猫 ½"), "two lines\n\tgrün 猫 ½");
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

}  // namespace
}  // namespace hadal
