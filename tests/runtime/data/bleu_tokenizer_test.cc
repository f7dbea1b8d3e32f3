// Expected tokens: those of sacreBLEU 2.6.0's tokenizers on the same text.

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/data/bleu.h"
#include "runtime/data/unicode_text.h"

namespace hadal {
namespace {

std::string Tokens(const std::string& text, BleuTokenizer tokenizer = BleuTokenizer::k13a) {
  return absl::StrJoin(TokenizeForBleu(tokenizer, text), "|");
}

TEST(TokenizeForBleu, CutsTextsAsSacreBleu) {
  using enum BleuTokenizer;
  struct Case {
    const char* what;
    BleuTokenizer tokenizer;
    const char *text, *tokens;
  };
  for (const Case& c : {
           Case{"periods and commas stay in numbers", k13a, "1,000.5 and 3.14, or .5", "1,000.5|and|3.14|,|or|.|5"},
           {"digits are ASCII's", k13a, "½. ١, 2.", "½|.|١|,|2|."},
           {"pairs do not overlap", k13a, "a..b ,,c", "a|.|.|b|,|,|c"},
           {"a hyphen", k13a, "e.g. U.S.-based 10-year 5-", "e|.|g|.|U|.|S|.|-based|10|-|year|5|-"},
           {"entities, in their order", k13a, "x&amp;lt;y &quot;q&quot;", "x|<|y|\"|q|\""},
           {"entities", k13a, "a&lt;b&gt;c & d", "a|<|b|>|c|&|d"},
           {"ASCII's punctuation", k13a, "don't (stop)!", "don't|(|stop|)|!"},
           {"all of it", k13a, "[x]{y}~z`^_@#$%*+=<>|\\/:;?", "[|x|]|{|y|}|~|z|`|^|_|@|#|$|%|*|+|=|<|>|||\\|/|:|;|?"},
           {"and no other", k13a, "„Ja“ … ‚nein‘ – 5–6", "„Ja“|…|‚nein‘|–|5–6"},
           {"a word broken at a line's end", k13a, "a-\nb\nc", "ab|c"},
           {"a mark that is left out", k13a, "a<skipped>b", "ab"},
           {"nothing", k13a, "", ""},
           {"blanks", k13a, " \u00a0\t", ""},
           {"Chinese characters, the rest as 13a", kZh, "他说：“AI，3.5-4.0版。”ok, fine.",
            "他|说|：|“|AI|，|3.5|-|4.0|版|。|”|ok|,|fine|."},
           {"the ends of ranges", kZh, "x\u9fbbx\u9fbcx\uffefx\ufff0x☂x", "x|\u9fbb|x\u9fbcx|\uffef|x\ufff0x|☂|x"},
           // "\u20000" is U+2000 and "0" in sacreBLEU's list of ranges.
           {"what extension B's four digits name", kZh, "x\u2010x\u2a6dx\u2a6ex", "x|\u2010|x|\u2a6d|x\u2a6ex"},
           {"not extension B", kZh, "x\U00020000x\U0002a6d6x", "x\U00020000x\U0002a6d6x"},
           {"no entities, nothing in front", kZh, " \u3000 .5 a.b &lt; x<skipped>y\t",
            ".5|a|.|b|&|lt|;|x|<|skipped|>|y"},
           {"every character but space", kChar, " a\u3000é\u0301,\U00020000 ☂\ufeff\u00a0",
            "a|é|\u0301|,|\U00020000|☂|\ufeff"},
           {"bytes that are no UTF-8", kChar, "\xE4\xB8 a\xFF", "\xE4|\xB8|a|\xFF"},
       }) {
    EXPECT_EQ(Tokens(c.text, c.tokenizer), c.tokens) << c.what;
  }
}

TEST(Tokenize13a, EveryDigitIsOne) {
  for (const char digit : std::string("0123456789")) {
    const std::string d(1, digit);
    EXPECT_EQ(Tokens(absl::StrCat(d, ",", d, ".", d, " ", d, "-x")), absl::StrCat(d, ",", d, ".", d, "|", d, "|-|x"));
  }
}

std::string Utf8(uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
}

// Python: [c for c in range(0x10000) if chr(c).isspace()]; no character beyond is one.
TEST(Tokenize13a, EveryCharacterBetweenLetters) {
  const std::set<uint32_t> spaces = {0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x1C,   0x1D,   0x1E,   0x1F,   0x20,
                                     0x85,   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006,
                                     0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  const std::string apart = "!\"#$%&()*+,./:;<=>?@[\\]^_`{|}~";
  for (uint32_t code = 1; code < 0x10000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;  // surrogates
    const std::string c = Utf8(code);
    const bool space = spaces.count(code) > 0;
    const std::string whole = absl::StrCat("a", c, "b");
    const std::string expected = space                                          ? "a|b"
                                 : c.size() == 1 && apart.find(c) != apart.npos ? absl::StrCat("a|", c, "|b")
                                                                                : whole;
    ASSERT_EQ(Tokens(whole), expected) << std::hex << code;
    ASSERT_EQ(StripTrailingSpace(absl::StrCat("a", c)), space ? "a" : absl::StrCat("a", c)) << std::hex << code;
  }
}

TEST(StripTrailingSpace, KnowsUnicode) {
  EXPECT_EQ(StripTrailingSpace(" a \u2003\u00a0\r\t"), " a");
  EXPECT_EQ(StripTrailingSpace("a\u200b"), "a\u200b");
  EXPECT_EQ(StripTrailingSpace(" \u3000"), "");
}

TEST(BleuTokenizerOf, GoesByTheLanguageBeforeItsScriptOrCountry) {
  for (const char* chinese : {"zh", "zh_CN", "zho_Hans", "cmn", "yue", "yue_Hant", "wuu", "ZH", "chi"}) {
    EXPECT_EQ(BleuTokenizerOf(chinese), BleuTokenizer::kZh) << chinese;
  }
  for (const char* unspaced :
       {"ja_XX", "jpn_Jpan", "tha", "lao", "km", "khm_Khmr", "my", "mya", "bo", "bod", "dz", "JPN_Jpan"}) {
    EXPECT_EQ(BleuTokenizerOf(unspaced), BleuTokenizer::kChar) << unspaced;
  }
  for (const char* other : {"de", "deu_Latn", "en", "ko", "tr", "zu", ""}) {
    EXPECT_EQ(BleuTokenizerOf(other), BleuTokenizer::k13a) << other;
  }
}

using Lines = std::vector<std::string>;

TEST(IsUnspaced, ScriptsWithoutSpacesBetweenWords) {
  EXPECT_TRUE(IsUnspaced(Lines{"我们昨天在公园里看到了一只黑色的猫。", "你好！"}));
  EXPECT_TRUE(IsUnspaced(Lines{"昨日、公園で黒い猫を見ました。", "カタカナだけのことばです"}));
  EXPECT_TRUE(IsUnspaced(Lines{"เมื่อวานเราเห็นแมวดำในสวนสาธารณะ"}));
  EXPECT_TRUE(IsUnspaced(Lines{"ພວກເຮົາເຫັນແມວດຳ", "ကျွန်တော်တို့ကြောင်နက်", "យើងបានឃើញឆ្មាខ្មៅ", "𠀀𠀁𠀂𠀃𠀄𠀅"}));
}

TEST(IsUnspaced, TextWithSpacesIsNot) {
  EXPECT_FALSE(IsUnspaced(Lines{"We saw a black cat in the park yesterday.", "Donaudampfschifffahrtsgesellschaft"}));
  EXPECT_FALSE(IsUnspaced(Lines{"Donaudampfschifffahrtsgesellschaft: 猫"})) << "most characters count";
  EXPECT_FALSE(IsUnspaced(Lines{"어제 공원에서 검은 고양이를 보았습니다."})) << "Korean has spaces";
  EXPECT_FALSE(IsUnspaced(Lines{"我们 昨天 在 公园 里 看到 了 一 只 黑色 的 猫 。"})) << "cut into words";
  EXPECT_FALSE(IsUnspaced(Lines{"我\u3000们\u3000昨\u3000天"})) << "by spaces as wide as a character";
  EXPECT_FALSE(IsUnspaced(Lines{"The word 猫 means cat, which I learnt at school yesterday."}));
  EXPECT_FALSE(IsUnspaced(Lines{}));
  EXPECT_FALSE(IsUnspaced(Lines{"", "  "}));
}

TEST(IsUnspaced, WhatIsNotUtf8IsRead) {
  EXPECT_FALSE(IsUnspaced(Lines{"\xE6\x88", "\xF0", "\xFF\xFE"})) << "cut off, or no character";
}

// Why it is asked: one character differs of thirty-six, and nothing matches.
TEST(IsUnspaced, OneOtherCharacterTakesAWholeSentenceFromBleu) {
  const Lines references = {"我们昨天在公园里看到了一只黑色的猫。", "他每天早上都在这里喝一杯热咖啡。"};
  Lines hypotheses = references;
  hypotheses[0].replace(0, 3, "你");
  EXPECT_TRUE(IsUnspaced(references));
  BleuCounts counts;
  for (size_t i = 0; i < hypotheses.size(); ++i) counts += CountBleuMatches(hypotheses[i], {references[i]});
  EXPECT_EQ(BleuFromCounts(counts).score, 0);
}

}  // namespace
}  // namespace hadal
