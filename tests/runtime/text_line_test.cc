#include "runtime/text_line.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(ReadLine, IsGetlineForEveryLengthAndBounded) {
  std::string text;
  for (const size_t length : {0, 1, 4094, 4095, 4096, 10'000, 8190, 0}) text += std::string(length, 'x') + "\n";
  for (const std::string& all : {text, text + "last", std::string(), std::string("\n")}) {
    std::istringstream expected(all), in(all);
    std::string a, b;
    while (std::getline(expected, a)) {
      ASSERT_TRUE(ReadLine(in, b));
      EXPECT_EQ(a, b);
    }
    EXPECT_FALSE(ReadLine(in, b));
    EXPECT_FALSE(in.bad());
  }
  std::ifstream endless("/dev/zero");
  std::string line;
  EXPECT_FALSE(ReadLine(endless, line));
  EXPECT_TRUE(endless.bad());
  EXPECT_EQ(ReadLineError("zeros", 0, line).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ReadLineError("zeros", 0, line).message()), ::testing::HasSubstr("zeros:1: has more than"));
}

}  // namespace
}  // namespace hadal
