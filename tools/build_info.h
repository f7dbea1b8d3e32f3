// `hadal --build-info` describes this binary, for a bug report or before a run on another machine.
#pragma once

#include <string>

namespace hadal {

// "0.1.0".
std::string Version();

// Returns several lines: version, commit, compiler, libraries with the versions in use, CUDA, and this CPU's
// instruction set. `commit`: the commit that was checked out when the binary was built. Starts neither MPI nor a GPU.
// Threads: any.
std::string BuildInfo(const std::string& commit);

}  // namespace hadal
