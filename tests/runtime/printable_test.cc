#include "runtime/printable.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace hadal {
namespace {

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
