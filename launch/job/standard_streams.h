// Handles standard input, output and error streams that the parent process has closed.
#pragma once

namespace hadal {

// Opens closed standard streams on /dev/null, for a process started with `>&-`: otherwise the next opened file would
// get their number and receive printed text. Must be called first in main.
void OpenStandardStreams();

// Flushes standard output; returns false if output was lost, for example on a full disk.
bool StandardOutputIsWhole();

}  // namespace hadal
