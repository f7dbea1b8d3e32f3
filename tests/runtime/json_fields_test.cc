#include "runtime/json_fields.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

enum class Colour { kRed, kBlue };
constexpr Word<Colour> kColours[] = {{"red", Colour::kRed}, {"blue", Colour::kBlue}};

const Json kObject =
    Json::parse(R"({"yes": true, "half": 0.5, "whole": -3, "none": null, "name": "ä.bin", "path": "../a",
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
  EXPECT_EQ(of_inner(false), "files[2].inner has fields that this version does not know");
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
