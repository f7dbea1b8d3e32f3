#include "tools/output/work_progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "runtime/clock.h"
#include "tools/output/human_units.h"
#include "tools/output/progress.h"

namespace hadal {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;

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
  setenv("HADAL_COLUMNS", "90", 1);
  EXPECT_EQ(TerminalColumns(file), 90);
  unsetenv("HADAL_COLUMNS");
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

DepthStripText Render(const std::vector<float>& norms, int encoder_sublayers, int columns, bool unicode = true) {
  DepthScale scale;
  scale.Follow(norms);
  return RenderDepthStrip({norms, encoder_sublayers, columns, unicode}, scale);
}

TEST(DepthStrip, HeightIsTheLogarithm) {
  std::vector<float> norms;
  for (int i = 0; i < 8; ++i) norms.push_back(std::pow(10.0f, i * 0.5f - 5.0f));
  const DepthStripText text = Render(norms, 4, 80);
  EXPECT_EQ(text.encoder, "▁▂▃▄");
  EXPECT_EQ(text.border, "│");
  EXPECT_EQ(text.decoder, "▅▆▇█");
  EXPECT_EQ(text.columns, 9);
  EXPECT_EQ(Render(norms, 4, 80, false).decoder, "=+*#");
}

TEST(DepthStrip, SharesColumnsByDepthAndNeverExceedsThem) {
  const DepthStripText text = Render(std::vector<float>(2500, 1.0f), 1000, 51);
  EXPECT_EQ(text.columns, 51);
  EXPECT_EQ(text.encoder.size(), 20u * 3);
  EXPECT_EQ(text.decoder.size(), 30u * 3);
  const DepthStripText lopsided = Render(std::vector<float>(2500, 1.0f), 1, 10);
  EXPECT_EQ(lopsided.encoder.size(), 1u * 3);
  EXPECT_EQ(lopsided.columns, 10);
}

TEST(DepthStrip, ColumnsAverageGeometrically) {
  // Columns: mean of 1e-4 and 1e0 = 1e-2, the middle of four decades; then both ends.
  const DepthStripText text = Render({1e-4f, 1.0f, 1e-4f, 1e-4f, 1.0f, 1.0f}, 0, 3);
  EXPECT_EQ(text.decoder, "▅▁█");
  EXPECT_EQ(text.border, "");
}

TEST(DepthStrip, ShowsZerosAndValuesThatAreNotFinite) {
  EXPECT_EQ(Render({0.0f, 1.0f, NAN, INFINITY}, 2, 80).encoder.substr(0, 2), "·");
  EXPECT_EQ(Render({0.0f, 1.0f, NAN, INFINITY}, 2, 80).decoder, "××");
  EXPECT_EQ(Render({}, 0, 80).columns, 0);
}

TEST(DepthScale, WidensAtOnceAndNarrowsSlowly) {
  DepthScale scale;
  EXPECT_FALSE(scale.known());
  scale.Follow(std::vector<float>{0.0f, NAN});
  EXPECT_FALSE(scale.known());
  scale.Follow(std::vector<float>{1e-6f, 1e-2f});
  EXPECT_NEAR(scale.low(), -6, 1e-6);
  EXPECT_NEAR(scale.high(), -2, 1e-6);
  scale.Follow(std::vector<float>{1e-8f, 1e-4f});
  EXPECT_NEAR(scale.low(), -8, 1e-6);
  EXPECT_NEAR(scale.high(), -2.1, 1e-6);
  scale.Follow(std::vector<float>{1e-6f, 1e-4f});
  EXPECT_NEAR(scale.low(), -7.9, 1e-6);
  EXPECT_NEAR(scale.high(), -2.195, 1e-6);
  scale.Follow(std::vector<float>{1e-6f, 1e1f});
  EXPECT_NEAR(scale.low(), -7.805, 1e-6);
  EXPECT_NEAR(scale.high(), 1, 1e-6);
}

TEST(DepthScale, SpansAtLeastADecade) {
  DepthScale scale;
  scale.Follow(std::vector<float>{1.0f});
  EXPECT_DOUBLE_EQ(scale.low(), -0.5);
  EXPECT_DOUBLE_EQ(scale.high(), 0.5);
}

TEST(HumanUnits, Durations) {
  EXPECT_EQ(HumanDuration(0), "0.0s");
  EXPECT_EQ(HumanDuration(9.94), "9.9s");
  EXPECT_EQ(HumanDuration(9.96), "10s");
  EXPECT_EQ(HumanDuration(59.4), "59s");
  EXPECT_EQ(HumanDuration(59.6), "1m00s");
  EXPECT_EQ(HumanDuration(200), "3m20s");
  EXPECT_EQ(HumanDuration(2 * 3600 + 5 * 60 + 59), "2h05m");
  EXPECT_EQ(HumanDuration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(HumanDuration(86399), "23h59m");
  EXPECT_EQ(HumanDuration(86400), "1d00h");
  EXPECT_EQ(HumanDuration(86400 + 23.5 * 3600), "1d23h");
  EXPECT_EQ(HumanDuration(1e10), "115740d17h");
  EXPECT_EQ(HumanDuration(1.1e10), "?");
  EXPECT_EQ(HumanDuration(-1), "?");
  EXPECT_EQ(HumanDuration(NAN), "?");
  EXPECT_EQ(HumanDuration(INFINITY), "?");
}

TEST(HumanUnits, Counts) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(1000), "1,000");
  EXPECT_EQ(HumanCount(1234567), "1,234,567");
  EXPECT_EQ(HumanCount(-123456), "-123,456");
  EXPECT_EQ(HumanCount(-1234567), "-1,234,567");
}

TEST(HumanUnits, Rates) {
  EXPECT_EQ(HumanRate(0), "0");
  EXPECT_EQ(HumanRate(950.2), "950");
  EXPECT_EQ(HumanRate(999.7), "1.00k");
  EXPECT_EQ(HumanRate(6123), "6.12k");
  EXPECT_EQ(HumanRate(9996), "10.0k");
  EXPECT_EQ(HumanRate(12345), "12.3k");
  EXPECT_EQ(HumanRate(99960), "100k");
  EXPECT_EQ(HumanRate(1.234e6), "1.23M");
  EXPECT_EQ(HumanRate(NAN), "?");
  EXPECT_EQ(HumanRate(-1), "?");
}

TEST(HumanUnits, ValuesKeepTheirDigits) {
  EXPECT_EQ(HumanValue(4.32149, 4), "4.321");
  EXPECT_EQ(HumanValue(9.99951, 4), "10.00");
  EXPECT_EQ(HumanValue(75.2, 4), "75.20");
  EXPECT_EQ(HumanValue(0.00123, 3), "0.00123");
  EXPECT_EQ(HumanValue(12345.6, 4), "12346");
  EXPECT_EQ(HumanValue(4.9e-4, 3), "4.90e-04");
  EXPECT_EQ(HumanValue(1e9, 4), "1.00e+09");
  EXPECT_EQ(HumanValue(123456, 4), "123456");
  EXPECT_EQ(HumanValue(1234567, 4), "1.23e+06");
  EXPECT_EQ(HumanValue(9.9994, 4), "9.999");
  EXPECT_EQ(HumanValue(-1.5, 3), "-1.50");
  EXPECT_EQ(HumanValue(0.0, 3), "0");
  EXPECT_EQ(HumanValue(-0.0, 3), "0");
}

TEST(HumanUnits, ValuesThatAreNotFiniteAreSaidInWords) {
  EXPECT_EQ(HumanValue(std::numeric_limits<double>::quiet_NaN(), 4), "not a number");
  EXPECT_EQ(HumanValue(-INFINITY, 4), "infinite");
}

// What a thread has written so far.
class Written : public std::streambuf {
 public:
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // Waits until it contains `words`, however late the thread of a busy machine is.
  void Await(const std::string& words) const {
    for (const Stopwatch watch; !absl::StrContains(text(), words) && watch.Seconds() < 60;) {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

 protected:
  std::streamsize xsputn(const char* data, std::streamsize count) override {
    const std::lock_guard lock(mutex_);
    text_.append(data, count);
    return count;
  }
  int_type overflow(int_type c) override {
    const char byte = traits_type::to_char_type(c);
    xsputn(&byte, 1);
    return c;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST(WrapAtWords, BreaksAtSpacesAndCountsNoColours) {
  EXPECT_EQ(WrapAtWords("warning: the vocabulary is small", 16), "warning: the\nvocabulary is\nsmall");
  EXPECT_EQ(WrapAtWords("one two", 7), "one two");
  EXPECT_EQ(WrapAtWords("one two three", 7), "one two\nthree");
  EXPECT_EQ(WrapAtWords("/a/path/longer/than/this is kept", 10), "/a/path/longer/than/this\nis kept");
  EXPECT_EQ(WrapAtWords("übermäßig große Öfen", 9), "übermäßig\ngroße\nÖfen");
  EXPECT_EQ(WrapAtWords("\033[31mwarning:\033[0m two words", 12), "\033[31mwarning:\033[0m two\nwords");
  EXPECT_EQ(WrapAtWords("short\nlines stay", 11), "short\nlines stay");
}

TEST(WorkProgress, LineSaysHowMuchIsDoneAndWhenItEnds) {
  EXPECT_EQ(WorkProgressLine("encoding train", "bytes", 12'300'000, 30'000'000, 10),
            "encoding train  41%  12.3M/30.0M bytes  ETA 14s");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 0, 9'999, 2), "scoring   0%  0/9,999 lines");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 12'000, 9'999, 2), "scoring  100%  9,999/9,999 lines  ETA 0.0s");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 9'999, 0, 60), "scoring  9,999 lines  1m00s");
  EXPECT_EQ(WorkProgressLine("training the vocabulary", "", 0, 0, 12), "training the vocabulary  12s");
}

TEST(WorkProgress, OnATerminalTheLineMovesAndDisappears) {
  Written written;
  std::ostream out(&written);
  const std::string twice = "\r\033[Kverifying  25%  1/4 checkpoin\r\033[Kverifying";
  {
    WorkProgress progress(
        {.out = out, .style = {.live = true, .columns = 30}, .first_live_seconds = 0.01, .live_seconds = 0.01},
        "verifying", "checkpoints", 4);
    progress.Advance(1);
    written.Await(twice);
  }
  EXPECT_THAT(written.text(), HasSubstr(twice));
  EXPECT_THAT(written.text(), EndsWith("\r\033[K"));
}

TEST(WorkProgress, ElsewhereALineComesAtIntervalsAndNothingForShortWork) {
  Written written;
  std::ostream out(&written);
  std::ostringstream nothing;
  {
    WorkProgress progress({.out = out, .style = {}, .first_plain_seconds = 0.05, .plain_seconds = 0.05}, "verifying",
                          "checkpoints", 0);
    written.Await("\n");
    WorkProgress brief({.out = nothing, .style = {.live = true}}, "verifying", "checkpoints", 0);
  }
  EXPECT_THAT(written.text(), ContainsRegex("verifying  [0-9.]+s\n"));
  EXPECT_EQ(nothing.str(), "");
}

}  // namespace
}  // namespace hadal
