// Describes the first error of a Chrome trace; returns "" if there is none. Checks: it is JSON; every slice has a
// duration ≥ 0 and begins at or after 0; slices of one track nest (none overlaps another partly); every arrow has both
// ends, each inside a slice of its track, and points forward in time up to the clock error, also to the begin of its
// last slice; every asynchronous bar has both ends and is its process's ("id2").
#pragma once

#include <string>
#include <vector>

namespace hadal {

std::vector<std::string> TraceFaults(const std::string& json);

}  // namespace hadal
