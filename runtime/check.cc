#include "runtime/check.h"

#include <cstdio>
#include <cstdlib>

namespace hadal {

void CheckFailed(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s\nThis is a bug in hadal, not in your configuration.\n", file, line,
               message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace hadal
