// Protects a process's standard streams: opens those that the parent process has closed, so that no other file gets
// their descriptors (0, 1, 2), and reports at the end whether all standard output was written.
// Threads: the main thread. Blocking: StandardOutputIsWhole, while it writes.
#pragma once

namespace hadal {

// Opens closed standard streams on /dev/null, for a process started with `>&-`: otherwise the next opened file would
// get their number and receive printed text. Must be called first in main.
void OpenStandardStreams();

// Flushes standard output; returns false if output was lost, for example on a full disk.
bool StandardOutputIsWhole();

}  // namespace hadal
