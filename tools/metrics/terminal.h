// What the reader of our output can show: a line that updates itself, colours, block glyphs; and how wide.
//
// Under mpirun each rank's standard output is a pseudo-terminal even where mpirun itself writes to a file; its window
// then has no size (Open MPI 4.1, measured), and the output counts as plain, unless HADAL_COLUMNS gives the width of
// the terminal that mpirun writes to (launch/quickstart sets it). Open MPI does not pass on later changes of the size.
#pragma once

namespace hadal {

struct TerminalStyle {
  bool live = false;    // a terminal that understands cursor movement
  bool color = false;   // live, and NO_COLOR (no-color.org) is not set
  bool unicode = true;  // false where the locale names another character set, or HADAL_ASCII is set
  int columns = 80;
};

// Looks at the file descriptor and at TERM, NO_COLOR, HADAL_ASCII, LC_ALL, LC_CTYPE and LANG. A locale that is not set,
// C or POSIX says nothing about the terminal and counts as Unicode.
TerminalStyle DetectTerminal(int file_descriptor);

// The window's present width, or 0 where there is none.
int TerminalColumns(int file_descriptor);

}  // namespace hadal
