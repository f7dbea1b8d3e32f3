// Expected tokens: sacreBLEU 2.6.0's Tokenizer13a on the same text.
#include "runtime/data/tokenize_13a.h"

#include <string>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

std::string Tokens(const std::string& text) { return absl::StrJoin(Tokenize13a(text), "|"); }

TEST(Tokenize13a, PeriodsAndCommasStayInsideNumbers) {
  EXPECT_EQ(Tokens("1,000.5 and 3.14, or .5"), "1,000.5|and|3.14|,|or|.|5");
  EXPECT_EQ(Tokens("½. ١, 2."), "½|.|١|,|2|.");
}

TEST(Tokenize13a, ScansNonOverlappingPairs) {
  EXPECT_EQ(Tokens("a..b ,,c"), "a|.|.|b|,|,|c");
  EXPECT_EQ(Tokens("e.g. U.S.-based 10-year 5-"), "e|.|g|.|U|.|S|.|-based|10|-|year|5|-");
}

TEST(Tokenize13a, DecodesEntitiesInOrder) { EXPECT_EQ(Tokens("x&amp;lt;y &quot;q&quot;"), "x|<|y|\"|q|\""); }

TEST(Tokenize13a, SetsOffAsciiPunctuationOnly) {
  EXPECT_EQ(Tokens("don't (stop)!"), "don't|(|stop|)|!");
  EXPECT_EQ(Tokens("[x]{y}~z`^_@#$%*+=<>|\\/:;?"), "[|x|]|{|y|}|~|z|`|^|_|@|#|$|%|*|+|=|<|>|||\\|/|:|;|?");
  EXPECT_EQ(Tokens("„Ja“ … ‚nein‘ – 5–6"), "„Ja“|…|‚nein‘|–|5–6");
}

TEST(Tokenize13a, SplitsAtUnicodeWhiteSpace) {
  EXPECT_EQ(Tokens("a\u00a0b\u2009c\u3000d\u200be\ufeff"), "a|b|c|d\u200be\ufeff");
  EXPECT_EQ(Tokens("\x1c"
                   "a\x1f"
                   "b\u0085c\u2028d \u00a0"),
            "a|b|c|d");
}

TEST(Tokenize13a, JoinsWordsBrokenAtALineEnd) {
  EXPECT_EQ(Tokens("a-\nb\nc"), "ab|c");
  EXPECT_EQ(Tokens("a<skipped>b"), "ab");
}

TEST(Tokenize13a, EmptyTextHasNoToken) {
  EXPECT_EQ(Tokens(""), "");
  EXPECT_EQ(Tokens(" \u00a0\t"), "");
}

TEST(StripTrailingSpace, KnowsUnicode) {
  EXPECT_EQ(StripTrailingSpace(" a \u2003\u00a0\r\t"), " a");
  EXPECT_EQ(StripTrailingSpace("a\u200b"), "a\u200b");
  EXPECT_EQ(StripTrailingSpace(" \u3000"), "");
}

}  // namespace
}  // namespace hadal
