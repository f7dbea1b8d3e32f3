// The name of the machine that this process runs on, as the system knows it; empty where it cannot be found out.
// Threads: any. Blocking: none.
#pragma once

#include <string>

namespace hadal {

std::string HostName();

}  // namespace hadal
