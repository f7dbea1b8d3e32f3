// Returns the machine's host name, or "" if the system does not report it.
// Thread safety: any thread. Non-blocking.
#pragma once

#include <string>

namespace hadal {

std::string HostName();

}  // namespace hadal
