// The name of this machine, as the system knows it; empty where it cannot be found out.
// Threads: any. Blocking: none.
#pragma once

#include <string>

namespace hadal {

std::string HostName();

}  // namespace hadal
