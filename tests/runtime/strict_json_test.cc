#include "runtime/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace hadal {
namespace {

using testing::HasSubstr;

constexpr StrictJsonLimits kLimits = {.max_bytes = 1000, .max_depth = 3};

std::string Reason(const std::string& text) {
  const auto parsed = ParseStrictJson(text, kLimits, "file");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << text;
  return std::string(parsed.status().message());
}

TEST(StrictJsonTest, ParsesPlainJson) {
  const auto parsed = ParseStrictJson(R"({"a": [1, 2], "b": {"a": "x"}})", kLimits, "file");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["a"][1], 2);
  EXPECT_EQ((*parsed)["b"]["a"], "x");
}

TEST(StrictJsonTest, RefusesWhatIsMalformed) {
  for (const std::string text : {"", "{", "{} {}", "{\"a\":}", "nul", "[1,]", "\"\xff\"", "[1e999]"}) Reason(text);
  EXPECT_THAT(Reason("{"), HasSubstr("file"));
}

TEST(StrictJsonTest, DepthIsLimitedExactly) {
  EXPECT_TRUE(ParseStrictJson("[[[1]]]", kLimits, "file").ok());
  EXPECT_THAT(Reason("[[[[1]]]]"), HasSubstr("deeper than 3"));
  const auto million = ParseStrictJson(std::string(1'000'000, '['), {.max_bytes = 2'000'000, .max_depth = 3}, "file");
  EXPECT_THAT(std::string(million.status().message()), HasSubstr("deeper than 3")) << "neither recursion nor memory";
}

TEST(StrictJsonTest, RefusesAKeyTwiceInOneObjectOnly) {
  EXPECT_THAT(Reason(R"({"a": 1, "a": 2})"), HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(Reason(R"({"x": {"a": 1, "\u0061": 2}})"), HasSubstr("appears twice"));
  EXPECT_TRUE(ParseStrictJson(R"({"x": {"a": 1}, "a": 2, "y": {"a": 1}})", kLimits, "file").ok());
}

// A parser that looks at all siblings whenever an object ends takes minutes here; the time limit of the test finds it.
TEST(StrictJsonTest, ManyObjectsInOneTakeLinearTime) {
  std::string text = "{\"first\":0";
  for (int i = 0; i < 200'000; ++i) text += ",\"" + std::to_string(i) + "\":{\"a\":[1,2]}";
  const auto parsed = ParseStrictJson(text + "}", {.max_bytes = 100'000'000, .max_depth = 3}, "file");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), 200'001u);
}

TEST(StrictJsonTest, RefusesLongText) { EXPECT_THAT(Reason(std::string(1001, ' ')), HasSubstr("limit of 1000")); }

}  // namespace
}  // namespace hadal
