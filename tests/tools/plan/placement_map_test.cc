#include "tools/plan/placement_map.h"

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(PlacementMap, SaysWhatEachHostHolds) {
  EXPECT_EQ(PlacementMap({.stages = 4, .replicas = 2}, {"n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2"}),
            "placement  4 stages x 2 replicas on 2 hosts, replicas of a stage together\n"
            "  n1  ranks 0-3  stages 0-1: replicas 0-1\n"
            "  n2  ranks 4-7  stages 2-3: replicas 0-1\n");
  EXPECT_EQ(PlacementMap({.stages = 4, .replicas = 2, .placement = Placement::kStagesTogether},
                         {"n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2"}),
            "placement  4 stages x 2 replicas on 2 hosts, stages of a replica together\n"
            "  n1  ranks 0-3  stages 0-3: replica 0\n"
            "  n2  ranks 4-7  stages 0-3: replica 1\n");
  EXPECT_EQ(PlacementMap({.stages = 2, .replicas = 2}, {"long", "long", "long", "b"}),
            "placement  2 stages x 2 replicas on 2 hosts, replicas of a stage together\n"
            "  long  ranks 0-2  stage 1: replica 0; stage 0: replicas 0-1\n"
            "  b     rank 3  stage 1: replica 1\n");
  EXPECT_EQ(PlacementMap({.stages = 5}, {"a", "b", "a", "b", "c"}, 2),
            "placement  5 stages x 1 replica on 3 hosts\n"
            "  a  ranks 0,2  stages 0,2\n"
            "  b  ranks 1,3  stages 1,3\n"
            "  and 1 host more\n");
  EXPECT_EQ(PlacementMap({.replicas = 2}, {"a", "b"}),
            "placement  1 stage x 2 replicas on 2 hosts\n"
            "  a  rank 0  stage 0: replica 0\n"
            "  b  rank 1  stage 0: replica 1\n");
}

}  // namespace
}  // namespace hadal
