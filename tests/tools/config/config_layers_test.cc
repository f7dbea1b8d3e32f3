#include "tools/config/config_origin.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kBase[] =
    "model { d_model: 512 heads: 8 dropout: 0.1 } learning_rate { warmup_fraction: 0.1 } data { train: \"a\" }";
constexpr char kSize[] = "model { d_model: 128 heads: 4 }";

class ConfigLayersTest : public ::testing::Test {
 protected:
  std::vector<std::string> Warnings(const std::vector<std::string>& texts) {
    std::vector<std::string> files;
    for (const std::string& text : texts) {
      files.push_back(directory_ / ("file" + std::to_string(files.size()) + ".textproto"));
      std::ofstream(files.back()) << text;
    }
    const auto warnings = LayersWithoutEffect(files);
    EXPECT_TRUE(warnings.ok()) << warnings.status();
    return *warnings;
  }

  TemporaryDirectory directory_;
};

TEST_F(ConfigLayersTest, ASizeInFrontOfItsBaseIsNamed) {
  EXPECT_THAT(Warnings({kSize, kBase}),
              ElementsAre(AllOf(HasSubstr("file0.textproto has no effect"), HasSubstr("all of its 2 fields"),
                                HasSubstr("model.d_model = 128 becomes 512"))));
}

TEST_F(ConfigLayersTest, TheRightOrderIsSilent) {
  EXPECT_THAT(Warnings({kBase, kSize}), IsEmpty());
  EXPECT_THAT(Warnings({kBase}), IsEmpty());
}

TEST_F(ConfigLayersTest, AFileThatKeepsAFieldHasAnEffect) {
  EXPECT_THAT(Warnings({"model { d_model: 128 d_ff: 64 }", kBase}), IsEmpty());
}

TEST_F(ConfigLayersTest, TheSameValuesAgainAreNoMistake) {
  EXPECT_THAT(Warnings({"model { heads: 8 }", kBase}), IsEmpty());
}

TEST_F(ConfigLayersTest, SeveralFilesTogetherReplaceOne) {
  EXPECT_THAT(Warnings({kSize, "model { d_model: 64 }", "model { heads: 2 }"}), ElementsAre(HasSubstr("file0")));
}

TEST_F(ConfigLayersTest, AnExcludedFieldIsReplaced) {
  EXPECT_THAT(Warnings({"learning_rate { warmup_updates: 7 }", kBase}),
              ElementsAre(HasSubstr("learning_rate.warmup_updates = 7")));
}

}  // namespace
}  // namespace hadal
