// Environment variables that change how a job runs, for logs and reports that others can read. Only variables listed in
// logged_environment.cc: printing all that begin with NCCL_ could publish a secret.
// Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

namespace hadal {

// Returns "NAME=VALUE" of each listed variable in `environment` (null-terminated, as environ), printable and in one
// line, in order of name.
std::vector<std::string> LoggedEnvironment(const char* const* environment);

}  // namespace hadal
