// Environment variables that change how a job runs, for logs and reports that others can read. Only variables of the
// list in logged_environment.cc: a prefix such as NCCL_ would also print a token that a user keeps in NCCL_SOMETHING.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

namespace hadal {

// Returns "NAME=VALUE" of each listed variable in `environment` (null-terminated, as environ), printable and in one
// line, in order of name.
std::vector<std::string> LoggedEnvironment(const char* const* environment);

}  // namespace hadal
