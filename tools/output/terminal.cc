#include "tools/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/match.h"

namespace hadal {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool UnicodeExpected() {
  if (!Environment("HADAL_ASCII").empty()) return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = Environment(name);
    if (locale.empty()) continue;
    const size_t dot = locale.find('.');
    if (dot == std::string_view::npos) return true;
    const std::string_view charset = locale.substr(dot + 1);
    return absl::StartsWithIgnoreCase({charset.data(), charset.size()}, "utf-8") ||
           absl::StartsWithIgnoreCase({charset.data(), charset.size()}, "utf8");
  }
  return true;
}

}  // namespace

int TerminalColumns(int file_descriptor) {
  winsize window{};
  const int columns = ioctl(file_descriptor, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
  return columns > 0 ? columns : std::atoi(std::string(Environment("HADAL_COLUMNS")).c_str());
}

TerminalStyle DetectTerminal(int file_descriptor) {
  TerminalStyle style;
  style.unicode = UnicodeExpected();
  const int columns = isatty(file_descriptor) ? TerminalColumns(file_descriptor) : 0;
  const std::string_view term = Environment("TERM");
  style.live = columns > 0 && term != "dumb";
  style.color = style.live && Environment("NO_COLOR").empty();
  if (columns > 0) style.columns = columns;
  return style;
}

}  // namespace hadal
