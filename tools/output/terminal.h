// Detects what the terminal can show: a self-updating line, colours, block characters, and its width.
//
// Under mpirun each rank's standard output is a pseudo-terminal even if mpirun itself writes to a file. Its window then
// has no size (measured with Open MPI 4.1), and the output counts as plain, unless HADAL_COLUMNS gives the width of the
// terminal that mpirun writes to (launch/quickstart sets it). Open MPI does not forward later changes of the size.
#pragma once

namespace hadal {

struct TerminalStyle {
  bool live = false;    // a terminal that understands cursor movement
  bool color = false;   // live, and NO_COLOR (no-color.org) is not set
  bool unicode = true;  // false if the locale names another character set, or HADAL_ASCII is set
  int columns = 80;
};

// Uses the file descriptor and TERM, NO_COLOR, HADAL_ASCII, LC_ALL, LC_CTYPE and LANG. A locale that is unset, C or
// POSIX says nothing about the terminal and counts as Unicode.
TerminalStyle DetectTerminal(int file_descriptor);

// The window's current width, or 0 if there is no window.
int TerminalColumns(int file_descriptor);

}  // namespace hadal
