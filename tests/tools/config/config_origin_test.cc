#include "tools/config/config_origin.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigOriginTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    SetContents(directory_ / name, text);
    return directory_ / name;
  }
  static std::string Explained(const std::string& message, const std::vector<std::string>& files,
                               const std::vector<std::string>& overrides) {
    const absl::Status status = WithOrigins(absl::InvalidArgumentError(message), files, overrides);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  TemporaryDirectory directory_;
};

TEST_F(ConfigOriginTest, FieldsOfTwoFilesNameBoth) {
  const std::string base = File("base.textproto", "model {\n  d_model: 64\n  heads: 8\n}\n");
  const std::string more = File("more.textproto", "# another width\nmodel { d_model: 100 }\n");
  const auto config = LoadConfig({base, more}, {}).value();
  const absl::Status status = WithOrigins(MakeRunOptions(config).status(), {base, more}, {});
  EXPECT_EQ(status.message(), "model.heads = 8 is not allowed; it must divide model.d_model = 100\n  " + base +
                                  ":3:3: model.heads = 8\n  " + more + ":2:9: model.d_model = 100");
}

TEST_F(ConfigOriginTest, TheLastOverrideStandsBeforeFiles) {
  const std::string base = File("base.textproto", "model { heads: 8 }");
  EXPECT_EQ(Explained("model.heads = 5.", {base}, {"model.heads=3", "model.heads = 5", "seed=7"}),
            "model.heads = 5.\n  --set model.heads = 5");
}

TEST_F(ConfigOriginTest, TheLastFileStandsBeforeTheFirst) {
  const std::string base = File("base.textproto", "model { heads: 8 }");
  const std::string more = File("more.textproto", "model { heads: 2 }");
  EXPECT_EQ(Explained("model.heads", {base, more}, {}), "model.heads\n  " + more + ":1:9: model.heads = 2");
  EXPECT_EQ(Explained("Set model.heads.", {more}, {}), "Set model.heads.\n  " + more + ":1:9: model.heads = 2");
}

TEST_F(ConfigOriginTest, WhatNobodySetSaysItsDefault) {
  const std::string base = File("base.textproto", "");
  EXPECT_EQ(Explained("stop.steps and pipeline.split", {base}, {}),
            "stop.steps and pipeline.split\n  not set: stop.steps (default: 0)\n  not set: pipeline.split (default: "
            "empty)");
}

TEST_F(ConfigOriginTest, OfTwoThatExcludeEachOtherTheReplacedOneIsNotSet) {
  const std::string base = File("base.textproto", "learning_rate { warmup_fraction: 0.1 }");
  const std::string text = Explained("learning_rate.warmup_fraction or learning_rate.warmup_updates", {base},
                                     {"learning_rate.warmup_updates=9"});
  EXPECT_THAT(text, ::testing::HasSubstr("\n  not set: learning_rate.warmup_fraction"));
  EXPECT_THAT(text, ::testing::EndsWith("\n  --set learning_rate.warmup_updates=9"));
}

TEST_F(ConfigOriginTest, AListIsPlacedAtItsFirstEntry) {
  const std::string base = File("base.textproto", "pipeline {\n  split: 3\n  split: 7\n}");
  EXPECT_EQ(Explained("pipeline.split: entry 2", {base}, {}),
            "pipeline.split: entry 2\n  " + base + ":2:3: pipeline.split = [3, 7]");
}

TEST_F(ConfigOriginTest, FieldsOfAModelArePlacedToo) {
  const std::string base = File("base.textproto", "model {\n  heads: 8\n  block { kv_heads: 3 }\n}");
  EXPECT_EQ(Explained("model: block.kv_heads = 3 must divide heads = 8", {base}, {}),
            "model: block.kv_heads = 3 must divide heads = 8\n  " + base + ":3:11: model.block.kv_heads = 3\n  " +
                base + ":2:3: model.heads = 8");
}

TEST_F(ConfigOriginTest, ARunDirectoryIsItsResolvedConfig) {
  std::filesystem::create_directory(directory_ / "run");
  File("run/config.resolved.textproto", "seed: 3\nmodel { heads: 2 }");
  EXPECT_EQ(Explained("model.heads", {directory_ / "run"}, {}),
            "model.heads\n  " + (directory_ / "run/config.resolved.textproto") + ":2:9: model.heads = 2");
}

TEST_F(ConfigOriginTest, OtherWordsAreNoFields) {
  const std::string base = File("base.textproto", "model { heads: 8 }");
  for (const char* message : {"cannot open model.json", "model.residual is a group", "e.g. heads ... 1.5", ""}) {
    EXPECT_EQ(Explained(message, {base}, {}), message);
  }
  EXPECT_TRUE(WithOrigins(absl::OkStatus(), {base}, {}).ok());
}

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
    return LayersWithoutEffect(files).value();
  }

  TemporaryDirectory directory_;
};

TEST_F(ConfigLayersTest, ASizeInFrontOfItsBaseIsNamed) {
  EXPECT_THAT(Warnings({kSize, kBase}),
              ElementsAre(AllOf(HasSubstr("file0.textproto has no effect"), HasSubstr("all of its 2 fields"),
                                HasSubstr("model.d_model = 128 becomes 512"))));
}

TEST_F(ConfigLayersTest, AFileWithAnEffectOrTheSameValuesIsSilent) {
  EXPECT_THAT(Warnings({kBase, kSize}), IsEmpty());
  EXPECT_THAT(Warnings({kBase}), IsEmpty());
  EXPECT_THAT(Warnings({"model { d_model: 128 d_ff: 64 }", kBase}), IsEmpty());
  EXPECT_THAT(Warnings({"model { heads: 8 }", kBase}), IsEmpty());
  EXPECT_THAT(Warnings({"seed: 7", kSize, "model { d_model: 64 }"}), IsEmpty()) << "the second one sets heads";
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
