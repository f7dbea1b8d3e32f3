#include "tools/plan/layout_list.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LayoutList, NamesRanksAndSettings) {
  const absl::StatusOr<std::vector<Layout>> layouts = ParseLayouts(
      "# two layouts\n"
      "\n"
      "one 1\n"
      "  grid\t4   --set pipeline.replicas=2 --set pipeline.schedule=\"gpipe\"\r\n",
      "list");
  ASSERT_TRUE(layouts.ok()) << layouts.status();
  ASSERT_EQ(layouts->size(), 2u);
  EXPECT_EQ((*layouts)[0].line, 3);
  EXPECT_EQ((*layouts)[0].name, "one");
  EXPECT_EQ((*layouts)[0].ranks, 1);
  EXPECT_THAT((*layouts)[0].overrides, IsEmpty());
  EXPECT_EQ((*layouts)[1].line, 4);
  EXPECT_EQ((*layouts)[1].ranks, 4);
  EXPECT_THAT((*layouts)[1].overrides, ElementsAre("pipeline.replicas=2", "pipeline.schedule=\"gpipe\""));
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

}  // namespace
}  // namespace hadal
