// Every file of configs/ and every composition that the READMEs speak of.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>

#include "configs/compare.pb.h"
#include "configs/machine.pb.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::IsEmpty;

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".textproto") files.push_back(entry.path().string());
  }
  EXPECT_FALSE(files.empty()) << folder;
  return files;
}

// As the schema that the file names in its head ("proto-message: …", which editors read).
absl::Status LoadAsItSays(const std::string& file) {
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  config::Comparison comparison;
  config::Machine machine;
  const auto says = [&](const std::string& message) {
    return text.find("# proto-message: hadal.config." + message + "\n") != std::string::npos;
  };
  if (says("RunConfig")) return LoadConfig({file}, {}).status();
  if (says("Comparison")) return LoadMessage(file, comparison);
  if (says("Machine")) return LoadMessage(file, machine);
  return absl::InvalidArgumentError(file + " does not say its schema: # proto-message: hadal.config.…");
}

TEST(ShippedConfigs, EachPartLoadsAloneAndEveryCompositionConverts) {
  const std::string configs = HADAL_CONFIGS;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs)) {
    if (entry.path().extension() != ".textproto") continue;
    EXPECT_EQ(LoadAsItSays(entry.path().string()), absl::OkStatus());
  }
  for (const std::string& file : FilesIn(configs + "/quickstart")) {  // launch/quickstart gives each a validation set
    EXPECT_THAT(MakeRunOptions(LoadConfig({file}, {"data.validation=v"}).value())->warnings, IsEmpty()) << file;
  }
  for (const std::string& base : FilesIn(configs)) {
    for (const std::string& size : FilesIn(configs + "/size")) {
      for (const std::string& depth : FilesIn(configs + "/depth")) {
        for (const std::string& method : FilesIn(configs + "/method")) {
          const auto config = LoadConfig({base, size, depth, method}, {}).value();
          const auto options = MakeRunOptions(config);
          ASSERT_TRUE(options.ok()) << base << " " << size << " " << depth << " " << method << ": " << options.status();
          EXPECT_EQ(CheckFieldsWithEffect(config), absl::OkStatus());
          const bool fades = method.find("b2t_no_ln") != std::string::npos && options->train.model.encoder_layers >= 50;
          if (fades) continue;  // from which depth on it warns depends on the width
          EXPECT_THAT(options->warnings, IsEmpty()) << base << " " << size << " " << depth << " " << method;
        }
      }
    }
  }
}

TEST(ShippedConfigs, TheLanguageModelAndTheEncoderAloneOnBertsBlockTakeEveryMethod) {
  const std::string configs = HADAL_CONFIGS;
  const std::vector<std::string> bases[] = {
      {configs + "/language_model/base.textproto"},
      {configs + "/masked_language_model/base.textproto", configs + "/block/bert.textproto"}};
  for (const bool masked : {false, true}) {
    for (const std::string& method : FilesIn(configs + "/method")) {
      std::vector<std::string> files = bases[masked];
      files.push_back(method);
      const auto config = LoadConfig(files, {}).value();
      const auto options = MakeRunOptions(config);
      ASSERT_TRUE(options.ok()) << method << ": " << options.status();
      EXPECT_TRUE(CheckTrainable(options->train).ok());
      EXPECT_EQ(options->train.model.has_encoder(), masked);
      EXPECT_EQ(options->train.masking.has_value(), masked);
      EXPECT_EQ(CheckFieldsWithEffect(config), absl::OkStatus()) << method;
      EXPECT_THAT(options->warnings, IsEmpty()) << method;
    }
  }
}

TEST(ShippedConfigs, ABlockLeavesNothingOfAnother) {
  const std::vector<std::string> blocks = FilesIn(std::string(HADAL_CONFIGS) + "/block");
  for (const std::string& block : blocks) {
    const auto alone = LoadConfig({block}, {}).value();
    EXPECT_EQ(CheckFieldsWithEffect(alone), absl::OkStatus()) << block;
    for (const std::string& before : blocks) {
      EXPECT_EQ(LoadConfig({before, block}, {}).value().DebugString(), alone.DebugString()) << before << " " << block;
    }
  }
}

TEST(ShippedConfigs, DepthFilesSayTheirDepth) {
  for (const int layers : {6, 18, 100, 500}) {
    const std::string name = std::string(HADAL_CONFIGS) + "/depth/" + std::to_string(layers) + ".textproto";
    const auto config = LoadConfig({name}, {}).value();
    EXPECT_EQ(config.model().encoder_layers(), layers);
    EXPECT_EQ(config.model().decoder_layers(), layers);
  }
}

}  // namespace
}  // namespace hadal
