#include "tools/output/work_progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace hadal {
namespace {

// A pseudo-terminal of the given width, and an environment that says nothing.
class TerminalTest : public ::testing::Test {
 protected:
  TerminalTest() {
    for (const char* name : {"NO_COLOR", "HADAL_ASCII", "LC_ALL", "LC_CTYPE", "LANG"}) unsetenv(name);
    setenv("TERM", "xterm", 1);
    master_ = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_GE(master_, 0);
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    terminal_ = open(ptsname(master_), O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal_, 0);
  }
  ~TerminalTest() override {
    close(terminal_);
    close(master_);
  }
  void SetColumns(unsigned short columns) {
    const winsize window = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(terminal_, TIOCSWINSZ, &window), 0);
  }
  int master_ = -1;
  int terminal_ = -1;
};

TEST_F(TerminalTest, ATerminalIsLive) {
  SetColumns(132);
  const TerminalStyle style = DetectTerminal(terminal_);
  EXPECT_TRUE(style.live);
  EXPECT_TRUE(style.color);
  EXPECT_TRUE(style.unicode);
  EXPECT_EQ(style.columns, 132);
}

TEST_F(TerminalTest, OneWithoutASizeIsPlainAsUnderMpirun) {
  const TerminalStyle style = DetectTerminal(terminal_);
  EXPECT_FALSE(style.live);
  EXPECT_FALSE(style.color);
}

TEST_F(TerminalTest, NoColorAndDumbAreRespected) {
  SetColumns(80);
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(DetectTerminal(terminal_).live);
  EXPECT_FALSE(DetectTerminal(terminal_).color);
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(DetectTerminal(terminal_).live);
}

TEST_F(TerminalTest, AFileIsPlain) {
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_FALSE(DetectTerminal(file).live);
  EXPECT_EQ(TerminalColumns(file), 0);
  close(file);
}

TEST_F(TerminalTest, TheLocalesCharacterSetDecidesAboutUnicode) {
  setenv("LANG", "C", 1);
  EXPECT_TRUE(DetectTerminal(terminal_).unicode);
  setenv("LANG", "de_DE.UTF-8", 1);
  EXPECT_TRUE(DetectTerminal(terminal_).unicode);
  setenv("LC_ALL", "de_DE.ISO-8859-1", 1);
  EXPECT_FALSE(DetectTerminal(terminal_).unicode);
  setenv("LC_ALL", "en_US.utf8", 1);
  EXPECT_TRUE(DetectTerminal(terminal_).unicode);
  setenv("HADAL_ASCII", "1", 1);
  EXPECT_FALSE(DetectTerminal(terminal_).unicode);
}

}  // namespace
}  // namespace hadal
