#include "tools/drawing/markdown.h"

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(EscapeMarkdown, OrdinaryNamesStayAsTheyAre) {
  for (const char* name : {"two_replicas", "method=post_ln,depth=18", "1.73x", "-2.7%", "run 3", "ä_ö", "a \\ b", ""}) {
    EXPECT_EQ(EscapeMarkdown(name), name);
  }
}

TEST(EscapeMarkdown, MarkupBecomesText) {
  EXPECT_EQ(EscapeMarkdown("a|b"), "a\\|b");
  EXPECT_EQ(EscapeMarkdown("<img src=x>&"), "&lt;img src=x&gt;&amp;");
  EXPECT_EQ(EscapeMarkdown("[x](y) `z` *bold* ~~no~~ $m$"), "\\[x\\](y) \\`z\\` \\*bold\\* \\~\\~no\\~\\~ \\$m\\$");
  EXPECT_EQ(EscapeMarkdown("_a_ b"), "\\_a\\_ b");
  EXPECT_EQ(EscapeMarkdown("end\\"), "end\\\\") << "or it would escape the border of the cell";
  EXPECT_EQ(EscapeMarkdown("two\nlines"), "two lines");
  EXPECT_EQ(EscapeMarkdown("\x1b[31m\xff"), "\\x1b\\[31m\\xff") << "nothing that a terminal obeys";
}

TEST(MarkdownTable, EscapesItsCellsAndMarksTheBest) {
  MarkdownTable table({"run", "a|b"});
  table.Add({"x|y", "1"});
  table.AddMarked({{.text = "z"}, {.text = "2*", .best = true}});
  EXPECT_EQ(std::move(table).Finish(), "| run | a\\|b |\n|---|---:|\n| x\\|y | 1 |\n| z | **2\\*** |\n");
}

}  // namespace
}  // namespace hadal
