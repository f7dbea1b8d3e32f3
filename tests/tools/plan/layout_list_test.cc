#include "tools/plan/layout_list.h"

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LayoutList, NamesRanksAndSettings) {
  const std::vector<Layout> layouts = ParseLayouts(
                                          "# two layouts\n"
                                          "\n"
                                          "one 1\n"
                                          "  grid\t4   --set pipeline.replicas=2 --set pipeline.schedule=\"gpipe\"\r\n",
                                          "list")
                                          .value();
  ASSERT_EQ(layouts.size(), 2u);
  EXPECT_EQ(layouts[0].line, 3);
  EXPECT_EQ(layouts[0].name, "one");
  EXPECT_EQ(layouts[0].ranks, 1);
  EXPECT_THAT(layouts[0].overrides, IsEmpty());
  EXPECT_EQ(layouts[1].line, 4);
  EXPECT_EQ(layouts[1].ranks, 4);
  EXPECT_THAT(layouts[1].overrides, ElementsAre("pipeline.replicas=2", "pipeline.schedule=\"gpipe\""));
}

struct BadList {
  const char* text;
  const char* message;
};
class BadLayouts : public ::testing::TestWithParam<BadList> {};

TEST_P(BadLayouts, AreRefusedWithTheirLine) {
  const absl::Status status = ParseLayouts(GetParam().text, "list").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadLayouts,
    ::testing::Values(BadList{"# nothing\n", "list has no layout"},
                      BadList{"a 1\n../b 2\n", "list:2: \"../b\" is not a valid name of a run"},
                      BadList{"..  2\n", "list:1: \"..\" is not a valid name"},
                      BadList{"a\n", "list:1: the name \"a\" must be followed by the number of ranks"},
                      BadList{"a 0\n", "number of ranks, 1 or more"}, BadList{"a two\n", "number of ranks, 1 or more"},
                      BadList{"a 1\nb 2\n\na 3\n", "list:4: the layout \"a\" is defined twice"},
                      BadList{"a 1 --run-dir x\n", "list:1: \"--run-dir\": the number of ranks"},
                      BadList{"a 1 --set\n", "list:1: \"--set\": the number of ranks"}));

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
}

}  // namespace
}  // namespace hadal
