#include "launch/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <iostream>

namespace hadal {

void OpenStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open returns the lowest free number, which is `stream`: those below are open.
    if (open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY) != stream) return;
  }
}

bool StandardOutputIsWhole() { return static_cast<bool>(std::cout.flush()); }

}  // namespace hadal
