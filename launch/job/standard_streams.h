// Standard input, output and error of a process, which its parent may have closed.
#pragma once

namespace hadal {

// Opens closed standard streams on /dev/null, for a process started with `>&-`: otherwise the next file opened would
// get the number, and printed text would go into it. Call first in main.
void OpenStandardStreams();

// Flushes standard output and returns whether all that was written has arrived; a full disk shows here at the latest.
bool StandardOutputIsWhole();

}  // namespace hadal
