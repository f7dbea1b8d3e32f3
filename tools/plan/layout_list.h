// Parses the layouts of a scaling sweep. Each line has a name, the number of ranks, and settings of `hadal train`:
//
//   # comment
//   one    1
//   two    2   --set pipeline.schedule="gpipe"
//   grid   4   --set pipeline.replicas=2 --set pipeline.threads=1
// Blanks separate words; quotes are part of a value, as the shell of launch/slurm/sweep.sbatch reads them.
// Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pipeline/options/grid_shape.h"

namespace hadal {

struct Layout {
  int line = 0;  // in the file, from 1
  std::string name;
  int ranks = 1;
  std::vector<std::string> overrides;  // "a.b=c"
};

// `path` is used in messages. Errors: InvalidArgument with the line for a name that is missing, used twice or not
// usable as a directory (letters, digits, ".", "_", "+", "-"), for fewer ranks than 1, for words other than --set
// FIELD=VALUE, and if there is no layout at all.
absl::StatusOr<std::vector<Layout>> ParseLayouts(absl::string_view text, const std::string& path);

// Prints which host runs which part of the grid:
//
//   placement  4 stages x 2 replicas on 2 hosts, replicas of a stage together
//     n1  ranks 0-3  stages 0-1: replicas 0-1
//     n2  ranks 4-7  stages 2-3: replicas 0-1
// `hosts`: of every rank. Hosts are in the order of their first rank; those beyond `most_hosts` are only counted.
// REQUIRES: hosts.size() = grid.ranks().
std::string PlacementMap(const GridShape& grid, const std::vector<std::string>& hosts, int most_hosts = 32);

}  // namespace hadal
