// What is wrong with a Chrome trace, in words; empty when nothing is. Checked: it is JSON; every slice has a duration
// of at least 0 and begins at or after 0; slices of one track nest (none overlaps another in part); every arrow has
// both ends, each inside a slice of its track, and points forward in time up to the clocks' error; every asynchronous
// bar has both ends.
#pragma once

#include <string>
#include <vector>

namespace hadal {

std::vector<std::string> TraceFaults(const std::string& json);

}  // namespace hadal
