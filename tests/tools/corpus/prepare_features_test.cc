// `hadal prepare --features`: frames stay with their transcripts, and features that are damaged are refused before
// anything is written. That the script writes this format: tests/tools/python/speech_features_test.py.
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/bytes.h"
#include "tests/tools/corpus/prepare_fixture.h"
#include "tools/corpus/inspect.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PrepareFeaturesTest : public PrepareTest {
 protected:
  void SetUp() override {
    PrepareTest::SetUp();
    Write("digits.txt", "1 10\n2 10\n3 10\n");
    options_.monolingual = options_.features = true;
    options_.source_vocabulary = options_.target_vocabulary = Path("digits.txt");
    options_.train = {{.target = Path("f.txt"), .features = Path("f")}};
    Write("f.txt", "1 2\n\n3\n2 2\n");
  }

  // Two shards of two utterances each; utterance i has i + 1 frames of two values, 10·i, 10·i + 1, …
  void WriteFeatures(const std::string& prefix = "f", float first = 0, uint32_t rate = 8000) {
    nlohmann::json shards = nlohmann::json::array();
    for (int shard = 0; shard < 2; ++shard) {
      std::string body;
      int64_t frames = 0;
      for (int i = 2 * shard; i < 2 * shard + 2; ++i) {
        std::vector<float> values(static_cast<size_t>(2 * (i + 1)), 10.0f * static_cast<float>(i));
        for (size_t k = 0; k < values.size(); ++k) values[k] += static_cast<float>(k);
        if (i == 0) values[0] = first;
        AppendValue(static_cast<uint32_t>(i + 1), body);
        body += AsBytes(values);
        frames += i + 1;
      }
      std::string bytes = "hadalfea";
      for (const uint32_t field : {1u, 2u, rate, 2u}) AppendValue(field, bytes);
      AppendValue(frames, bytes);
      bytes += body;
      const std::string file = prefix + ".0000" + std::to_string(shard) + ".features";
      Write(file, bytes);
      shards.push_back({{"file", file},
                        {"bytes", bytes.size()},
                        {"utterances", 2},
                        {"frames", frames},
                        {"crc32", crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size())}});
    }
    manifest_ = {{"format", "hadal features"}, {"version", 1},    {"frame_width", 2}, {"sample_rate", rate},
                 {"cmvn", "utterance"},        {"utterances", 4}, {"frames", 10},     {"shards", shards}};
    Write(prefix + ".json", manifest_.dump());
  }

  nlohmann::json manifest_;
};

TEST_F(PrepareFeaturesTest, FramesStayWithTheirTranscripts) {
  WriteFeatures();
  ASSERT_TRUE(Run().ok()) << Run();
  const Corpus train = OpenCorpus("train");
  EXPECT_EQ(train.manifest().frame_width, 2);
  EXPECT_EQ(train.manifest().inputs(), (InputKind{"none", 2, manifest_["sample_rate"], "utterance"}));
  EXPECT_EQ(train.manifest().source_vocabulary.size, 0);
  EXPECT_EQ(train.manifest().statistics.source_tokens, 1 + 3 + 4);
  EXPECT_EQ(train.manifest().statistics.longest_source, 4);
  ASSERT_EQ(train.size(), 3) << "the utterance with an empty transcript is left out";
  EXPECT_THAT(train.sample(0).frames, ElementsAre(0, 1));
  EXPECT_THAT(train.sample(1).frames, ElementsAre(20, 21, 22, 23, 24, 25));
  EXPECT_THAT(train.sample(2).frames, ElementsAre(30, 31, 32, 33, 34, 35, 36, 37));
  EXPECT_THAT(train.sample(1).target, ElementsAre(6));
  EXPECT_THAT(out_.str(), HasSubstr("wrote train: 3 utterances; 8 frames of 2 features (longest 4), target 5 tokens"));
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1 of 4 (25%): 1 empty"));
  std::ostringstream batch;
  ASSERT_TRUE(RunInspectBatch({.data = options_.output + "/train", .micro_batches = 1}, batch).ok());
  EXPECT_THAT(batch.str(), HasSubstr("frames 1 of 2 features, 1 encoder rows; mean 0.500, deviation 0.500\n"));
}

TEST_F(PrepareFeaturesTest, FramesStayWithTheTranscriptsOfEachPrefix) {
  WriteFeatures();
  WriteFeatures("g");
  options_.train.push_back({.target = Path("f.txt"), .features = Path("g")});
  ASSERT_TRUE(Run().ok()) << Run();
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 6);
  EXPECT_THAT(train.sample(4).frames, ElementsAre(20, 21, 22, 23, 24, 25));
}

TEST_F(PrepareFeaturesTest, FeaturesAreNotWrittenOver) {
  WriteFeatures("train");
  const std::string manifest = Read("train.json");
  options_.train = {{.target = Path("f.txt"), .features = Path("train")}};
  options_.output = Path("");
  options_.overwrite = true;
  ExpectError({"train.json", "hadal features", "choose another --out"});
  EXPECT_EQ(Read("train.json"), manifest);
}

TEST_F(PrepareFeaturesTest, DamagedFeaturesAreRefused) {
  const auto refuse = [&](const std::string& part) { ExpectError({part, "make the features again"}); };
  WriteFeatures();
  const std::string whole = Read("f.00001.features");
  Write("f.00001.features", whole.substr(0, whole.size() - 4));
  refuse("f.00001.features: it has ");
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string flipped = whole;
    flipped[place] = static_cast<char>(flipped[place] ^ 16);
    Write("f.00001.features", flipped);
    refuse("f.00001.features: it");
  }
  WriteFeatures("f", std::numeric_limits<float>::quiet_NaN());
  refuse("utterance 0 has a value that is not finite");
  std::filesystem::remove(Path("f.00001.features"));
  WriteFeatures();
  std::filesystem::remove(Path("f.00001.features"));
  refuse("f.00001.features");

  WriteFeatures();
  for (const auto& [field, value] : std::map<std::string, nlohmann::json>{{"frame_width", 3},
                                                                          {"frame_width", -1},
                                                                          {"sample_rate", 16000},
                                                                          {"utterances", 5},
                                                                          {"frames", 11},
                                                                          {"version", 2},
                                                                          {"format", "hadal corpus"},
                                                                          {"shards", "none"}}) {
    nlohmann::json changed = manifest_;
    changed[field] = value;
    Write("f.json", changed.dump());
    refuse("");
  }
  Write("f.json", "{");
  refuse("f.json");
}

// Counts that match the checksum but not the bytes: of the first utterance, and too few of the last one.
TEST_F(PrepareFeaturesTest, AnUtteranceLongerThanItsShardIsRefused) {
  WriteFeatures();
  const std::string whole = Read("f.00001.features");
  for (const auto& [place, frames] : {std::pair(32, 0u), {32, 4u}, {32, 0xffffffffu}, {32 + 4 + 3 * 2 * 4, 3u}}) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + place, &frames, sizeof(frames));
    Write("f.00001.features", bytes);
    manifest_["shards"][1]["crc32"] = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()) + 32, bytes.size() - 32);
    Write("f.json", manifest_.dump());
    ExpectError({"f.00001.features: "});
  }
}

TEST_F(PrepareFeaturesTest, TranscriptsAndSplitsMustMatch) {
  WriteFeatures();
  Write("f.txt", "1 2\n3\n2 2\n");
  ExpectError({"f.txt has 3 lines", "f.json has 4 utterances"});
  Write("f.txt", "1 2\n\n3\n2 2\n");
  nlohmann::json changed = manifest_;
  changed["transcripts"] = {{"bytes", 11}, {"crc32", 1}};
  Write("f.json", changed.dump());
  ExpectError({"f.txt: its content does not match its checksum in the manifest"});
  Write("f.json", manifest_.dump());
  options_.block = 8;
  ExpectError({"transcripts are sentences; omit --block"});
  options_.block = 0;
  options_.mask_token = "";
  ExpectError({"--mask-token is for encoders alone"});
  options_.mask_token.reset();
  WriteFeatures("v", 0, 16000);
  Write("v.txt", "1\n1\n1\n1\n");
  options_.valid = {{.target = Path("v.txt"), .features = Path("v")}};
  ExpectError({"2 filters at 16000 Hz", "2 filters at 8000 Hz", "make all features with the same options"});
  options_.valid = {{.target = Path("v.txt"), .features = Path("none")}};
  ExpectError({"none.json is missing"});
}

}  // namespace
}  // namespace hadal
