// WorkProgress shows the progress of a command that takes more than a second, in one line that a thread of its own
// redraws. Also the layout of progress lines, which training uses.
//
//   encoding train  41%  12.3M/30.1M bytes  ETA 8s
//   training the vocabulary  12s                                   (total unknown)
// On a terminal the line updates itself and disappears at the end. Elsewhere a line is written after five seconds, then
// once a minute.
// While it exists, nothing else may write to the terminal.
// Thread safety: Advance may be called by any thread. Non-blocking, except that the destructor waits for the thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "runtime/metrics_sink.h"

namespace hadal {

struct TerminalStyle {
  bool live = false;    // a terminal that understands cursor movement
  bool color = false;   // live, and NO_COLOR (no-color.org) is not set
  bool unicode = true;  // false if the locale names another character set, or HADAL_ASCII is set
  int columns = 80;
};

// Detects what the terminal can show: a self-updating line, colours, block characters, and its width.
//
// Under mpirun each rank's standard output is a pseudo-terminal even if mpirun itself writes to a file. Its window then
// has no size (measured with Open MPI 4.1), and the output counts as plain, unless HADAL_COLUMNS gives the width of the
// terminal that mpirun writes to (launch/quickstart sets it). Open MPI does not forward later changes of the size.
// Uses the file descriptor and TERM, NO_COLOR, HADAL_ASCII, LC_ALL, LC_CTYPE and LANG. A locale that is unset, C or
// POSIX says nothing about the terminal and counts as Unicode.
TerminalStyle DetectTerminal(int file_descriptor);

// The window's current width, or 0 if there is no window.
int TerminalColumns(int file_descriptor);

// Colours of the progress line.
// By the codes of ANSI terminals.
enum class Ink { kPlain = 0, kBold = 1, kDim = 2, kBad = 31, kGood = 32, kDecoder = 34, kEncoder = 36 };

// `text` in the ink's colour if `color`, else unchanged.
std::string Paint(std::string_view text, Ink ink, bool color);

// Width in columns of UTF-8 text without escapes, assuming that each character is one column wide.
int DisplayWidth(std::string_view text);

// Lines of cells of such text as a table: two spaces between columns, `margin` before the first, which is flush left as
// the others are flush right. REQUIRES: as many cells in every line.
std::string AlignedColumns(const std::vector<std::vector<std::string>>& lines, std::string_view margin = "");

// The first `columns` columns of such text.
std::string CutToWidth(std::string_view text, int columns);

// Breaks text, which may have Paint's colours, at spaces into lines of at most `columns` columns; keeps a longer word.
std::string WrapAtWords(std::string_view text, int columns);

struct LineSegment {
  std::string label;  // may be empty
  std::string value;
  Ink ink = Ink::kPlain;  // of the value; labels are dim
  int rank = 0;           // importance; 0 is kept longest
};

// Joins the segments, two spaces apart, in at most `columns` columns. Drops segments of the highest rank first (of
// equals, the right-most); truncates the last one if it is still too wide.
std::string LayOutLine(std::vector<LineSegment> segments, int columns, bool color);

// The segments of a step. A live style adds the bar and omits what only logs need (elapsed time).
std::vector<LineSegment> StepSegments(const StepMetrics& metrics, const TerminalStyle& style);

std::vector<LineSegment> ValidationSegments(const ValidationMetrics& metrics);
// A line for each of the validation's corpora; with more than twelve one line with their means.
std::vector<std::string> CorpusLines(const ValidationMetrics& metrics);

class WorkProgress {
 public:
  struct Output {
    std::ostream& out;
    TerminalStyle style;
    double first_live_seconds = 1;   // until the first line on a terminal
    double live_seconds = 0.2;       // between two lines on a terminal
    double first_plain_seconds = 5;  // elsewhere
    double plain_seconds = 60;
  };

  // `what` is done in `total` units ("bytes", "lines"). `total` 0: unknown. Writes to standard error.
  WorkProgress(std::string what, std::string unit, int64_t total);
  WorkProgress(Output output, std::string what, std::string unit, int64_t total);

  // `units` more are done.
  void Advance(int64_t units) { done_.fetch_add(units, std::memory_order_relaxed); }

 private:
  void Tick(const std::stop_token& ended);

  const Output output_;
  const std::string what_, unit_;
  const int64_t total_;
  const Stopwatch watch_;
  std::atomic<int64_t> done_ = 0;
  std::jthread thread_;  // last member: starts when all others are constructed
};

// The line, without colours. `total` 0: unknown.
std::string WorkProgressLine(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                             double seconds);

}  // namespace hadal
