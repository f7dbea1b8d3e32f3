
#include <limits>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "runtime/json_fields.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using testing::HasSubstr;
using ::testing::IsEmpty;

constexpr StrictJsonLimits kLimits = {.max_bytes = 1000, .max_depth = 3};

std::string Reason(const std::string& text) {
  const auto parsed = ParseStrictJson(text, kLimits, "file");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << text;
  return std::string(parsed.status().message());
}

TEST(StrictJsonTest, ParsesPlainJson) {
  const auto parsed = ParseStrictJson(R"({"a": [1, 2], "b": {"a": "x"}})", kLimits, "file");
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
  EXPECT_EQ(parsed->size(), 200'001u);
}

TEST(StrictJsonTest, RefusesLongText) { EXPECT_THAT(Reason(std::string(1001, ' ')), HasSubstr("limit of 1000")); }

using Json = nlohmann::json;

enum class Colour { kRed, kBlue };
constexpr Word<Colour> kColours[] = {{"red", Colour::kRed}, {"blue", Colour::kBlue}};

const Json kObject =
    Json::parse(R"({"yes": true, "half": 0.5, "whole": -3, "none": null, "name": "ä.bin", "path": "../a",
                                     "long": "ääääääääääääääääääääääääääääää",
                                     "colour": "blue", "list": [1, 2], "inner": {"seed": 18446744073709551615}})");

// What `read` leaves in the status.
template <typename Read>
std::string ErrorOf(const Read& read) {
  absl::Status status;
  JsonFields fields(kObject, "files[2]", status);
  read(fields);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

TEST(JsonFields, ReadsEachType) {
  bool yes = false;
  double half = 0, whole = 0, none = 0;
  int32_t number = 0;
  uint64_t seed = 0;
  std::string name, file;
  Colour colour = Colour::kRed;
  EXPECT_THAT(ErrorOf([&](JsonFields& fields) {
                fields.Read("yes", yes);
                fields.Read("half", half);
                fields.Read("whole", whole);
                fields.Read("whole", number, -3, 0);
                fields.ReadOrInfinity("none", none);
                fields.Read("name", name);
                fields.ReadFileName("name", file);
                fields.Read("colour", colour, kColours);
                fields.Object("inner").Read("seed", seed);
                EXPECT_EQ(fields.List("list").size(), 2u);
                EXPECT_TRUE(fields.Has("list"));
                EXPECT_FALSE(fields.Has("tail"));
              }),
              IsEmpty());
  EXPECT_TRUE(yes);
  EXPECT_EQ(half, 0.5);
  EXPECT_EQ(whole, -3);
  EXPECT_EQ(number, -3);
  EXPECT_EQ(none, std::numeric_limits<double>::infinity());
  EXPECT_EQ(name, "ä.bin");
  EXPECT_EQ(file, "ä.bin");
  EXPECT_EQ(colour, Colour::kBlue);
  EXPECT_EQ(seed, std::numeric_limits<uint64_t>::max());
}

TEST(JsonFields, ErrorsNameTheFieldItsValueAndWhatIsWanted) {
  bool flag = false;
  double number = 0;
  std::string text;
  Colour colour = Colour::kRed;
  EXPECT_EQ(ErrorOf([&](JsonFields& f) { f.Read("tail", flag); }), "the field files[2].tail is missing");
  EXPECT_EQ(ErrorOf([&](JsonFields& f) { f.Read("half", flag); }),
            "the field files[2].half is 0.5, expected true or false");
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.Read("list", number); }), HasSubstr("is an array, expected a number"));
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.Read("long", number); }),
              HasSubstr(R"(is "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u0..., expected a number)"));
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.ReadOrInfinity("name", number); }), HasSubstr("expected a number"));
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.Read("yes", text); }), HasSubstr("is true, expected text"));
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.ReadFileName("path", text); }),
              HasSubstr("is \"../a\", expected a plain file name"));
  EXPECT_EQ(text, "");
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.Read("name", colour, kColours); }), HasSubstr("has an unknown value"));
  EXPECT_THAT(ErrorOf([&](JsonFields& f) { f.List("inner"); }), HasSubstr("is an object, expected a list"));
  EXPECT_EQ(ErrorOf([&](JsonFields& f) { f.Object("list"); }), "files[2].list is an array, not an object");
  EXPECT_EQ(ErrorOf([&](JsonFields& f) { f.Object("inner").Read("seat", text); }),
            "the field files[2].inner.seat is missing");
}

TEST(JsonFields, WholeNumbersKeepToTheirRange) {
  const auto error = [](const char* name, auto value, auto... bounds) {
    return ErrorOf([&](JsonFields& fields) { fields.Read(name, value, bounds...); });
  };
  EXPECT_THAT(error("whole", int64_t{0}), IsEmpty());
  EXPECT_THAT(error("whole", uint32_t{0}), HasSubstr("is -3, expected a whole number from 0 to 4294967295"));
  EXPECT_THAT(error("whole", int64_t{0}, -2),
              HasSubstr("is -3, expected a whole number from -2 to 9223372036854775807"));
  EXPECT_THAT(error("whole", 0, -9, -4), HasSubstr("from -9 to -4"));
  EXPECT_THAT(error("half", 0), HasSubstr("is 0.5, expected a whole number"));
  EXPECT_EQ(JsonInteger<int64_t>(kObject["inner"]["seed"]), std::nullopt);
  EXPECT_EQ(JsonInteger<int8_t>(Json(127)), 127);
  EXPECT_EQ(JsonInteger<int8_t>(Json(128)), std::nullopt);
  EXPECT_EQ(JsonInteger<int32_t>(Json(1.0)), std::nullopt);
}

TEST(JsonFields, TheFirstErrorStaysAndLaterReadsKeepTheirValues) {
  int32_t kept = 7;
  EXPECT_EQ(ErrorOf([&](JsonFields& fields) {
              fields.Read("tail", kept);
              fields.Read("whole", kept);
              fields.Read("name", kept);
              EXPECT_TRUE(fields.List("list").empty());
              fields.Object("inner").Read("seed", kept);
              fields.NoOthers();
            }),
            "the field files[2].tail is missing");
  EXPECT_EQ(kept, 7);
}

TEST(JsonFields, CountsWhatNobodyAskedFor) {
  const auto of_inner = [](bool read) {
    return ErrorOf([&](JsonFields& fields) {
      JsonFields inner = fields.Object("inner");
      uint64_t seed = 0;
      if (read) inner.Read("seed", seed);
      inner.NoOthers();
    });
  };
  EXPECT_THAT(of_inner(true), IsEmpty());
  EXPECT_EQ(of_inner(false), "files[2].inner has fields that this version cannot read");
  const Json null = Json::parse(R"({"a": null})");
  absl::Status status;
  JsonFields fields(null, "", status);
  double a = 0;
  fields.ReadOrInfinity("a", a);
  fields.NoOthers();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(JsonFields, AnObjectIsOne) {
  for (const Json& json : {Json(), Json(3), Json::array({1})}) {
    absl::Status status;
    int32_t number = 0;
    JsonFields fields(json, "", status);
    fields.Read("a", number);
    EXPECT_FALSE(fields.Has("a"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("not an object"));
  }
}

}  // namespace
}  // namespace hadal
