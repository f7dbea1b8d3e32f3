// Standard input, output and error of a process, as whoever starts it left them.
#pragma once

namespace hadal {

// Opens those that are closed on /dev/null, for a process started with `>&-`: the next file opened would get the
// number, and what is printed would go into it. Call first thing in main.
void OpenStandardStreams();

// Whether all that has been written to standard output has arrived there: a full disk shows here at the latest.
// Flushes it.
bool StandardOutputIsWhole();

}  // namespace hadal
