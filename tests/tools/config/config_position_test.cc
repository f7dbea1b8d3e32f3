#include "tools/config/config_origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kText[] =
    "seed: 7\n"                      // line 0
    "model {  # a comment: {\n"      // 1
    "  heads: -8foo\n"               // 2
    "  residual { method: 1f1b }\n"  // 3
    "  d_ff: }\n"                    // 4
    "pipeline < split: [1, x, 3] >\n";

TEST(FieldAt, NamesTheFieldWhoseValueStandsThere) {
  const FieldAtPosition field = FieldAt(kText, {0, 6});
  EXPECT_THAT(field.path, ElementsAre("seed"));
  EXPECT_TRUE(field.in_value);
  EXPECT_EQ(field.value_text, "7");
  EXPECT_EQ(field.name, (TextPosition{0, 0}));
}

TEST(FieldAt, IsEmptyBeforeTheFirstField) {
  EXPECT_THAT(FieldAt(kText, {0, 0}).path, IsEmpty());
  EXPECT_THAT(FieldAt("", {0, 0}).path, IsEmpty());
}

TEST(FieldAt, JoinsAValueOfSeveralTokens) {
  const FieldAtPosition negative = FieldAt(kText, {2, 9});
  EXPECT_THAT(negative.path, ElementsAre("model", "heads"));
  EXPECT_EQ(negative.value_text, "-8foo");
  const FieldAtPosition digits_first = FieldAt(kText, {3, 23});  // where the tokenizer objects: behind "1f"
  EXPECT_THAT(digits_first.path, ElementsAre("model", "residual", "method"));
  EXPECT_EQ(digits_first.value_text, "1f1b");
  EXPECT_EQ(digits_first.value, (TextPosition{3, 21}));
}

TEST(FieldAt, SeesAMissingValue) {
  const FieldAtPosition field = FieldAt(kText, {4, 8});
  EXPECT_THAT(field.path, ElementsAre("model", "d_ff"));
  EXPECT_TRUE(field.in_value);
  EXPECT_EQ(field.value_text, "");
}

TEST(FieldAt, FindsTheElementOfAList) {
  const FieldAtPosition field = FieldAt("pipeline < split: [1, x, 3] >", {0, 22});
  EXPECT_THAT(field.path, ElementsAre("pipeline", "split"));
  EXPECT_EQ(field.value_text, "x");
}

TEST(FieldAt, IsTheGroupAfterAGroupHasClosed) {
  const FieldAtPosition field = FieldAt("model { heads: 8 } }", {0, 19});
  EXPECT_FALSE(field.in_value);
  EXPECT_THAT(field.path, IsEmpty());
}

}  // namespace
}  // namespace hadal
