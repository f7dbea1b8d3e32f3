// Which host runs which part of the grid of stages and replicas.
#pragma once

#include <string>
#include <vector>

#include "pipeline/options/grid_shape.h"

namespace hadal {

// Returns a line for each host:
//
//   placement  4 stages x 2 replicas on 2 hosts, replicas of a stage together
//     n1  ranks 0-3  stages 0-1: replicas 0-1
//     n2  ranks 4-7  stages 2-3: replicas 0-1
// `hosts`: of every rank. Hosts are in the order of their first rank; those beyond `most_hosts` are only counted.
// REQUIRES: hosts.size() = grid.ranks().
std::string PlacementMap(const GridShape& grid, const std::vector<std::string>& hosts, int most_hosts = 32);

}  // namespace hadal
