#include "runtime/host_name.h"

#include <unistd.h>

namespace hadal {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace hadal
