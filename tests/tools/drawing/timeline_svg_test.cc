#include "tools/drawing/timeline_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/drawing/svg.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Svg, EscapesTextAndTitles) {
  Svg svg(100, 50);
  svg.Text(1, 2, "a < b & \"c\"");
  svg.Rect(0, 0, 1, 1, "#fff", "<script>");
  const std::string text = std::move(svg).Finish();
  EXPECT_THAT(
      text, AllOf(HasSubstr("a &lt; b &amp; &quot;c&quot;"), HasSubstr("&lt;script&gt;"), Not(HasSubstr("<script>"))));
  EXPECT_THAT(text, AllOf(HasSubstr("<svg xmlns"), HasSubstr("</svg>")));
}

TEST(ChooseRows, AllOrAnEvenSelectionWithBothEnds) {
  EXPECT_THAT(ChooseRows(3, 10), ElementsAre(0, 1, 2));
  EXPECT_THAT(ChooseRows(101, 5), ElementsAre(0, 25, 50, 75, 100));
  EXPECT_THAT(ChooseRows(0, 5), ElementsAre());
  EXPECT_THAT(ChooseRows(7, 1), ElementsAre(0));
}

TEST(Timeline, WideBarsCarryTheirLabelNarrowOnesBecomeARaster) {
  Timeline timeline{.kinds = {{"forward", "#00f"}, {"backward", "#f80"}},
                    .row_names = {"rank 0", "rank 1"},
                    .spans = {{{0, 0.5, 0, "F0"}, {0.5, 1, 1, "B0"}}, {}},
                    .end_seconds = 1};
  for (int i = 0; i < 10000; ++i) timeline.spans[1].push_back({i * 1e-4, (i + 1) * 1e-4, i < 5000 ? 0 : 1, "x"});
  const std::string svg = DrawTimeline(timeline, {});
  EXPECT_THAT(svg, AllOf(HasSubstr(">F0</text>"), HasSubstr(">B0</text>"), Not(HasSubstr(">x</text>"))));
  // Two legends, two bars, two runs of the raster.
  EXPECT_EQ(Count(svg, "fill=\"#00f\"") + Count(svg, "fill=\"#f80\""), 6);
}

}  // namespace
}  // namespace hadal
