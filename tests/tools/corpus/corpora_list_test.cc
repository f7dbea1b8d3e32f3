#include "tools/corpus/corpora_list.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/tools/corpus/prepare_fixture.h"
#include "tools/command_line.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CorporaListTest : public PrepareTest {
 protected:
  void SetUp() override {
    PrepareTest::SetUp();
    Write("docs.tsv", "Open the file.\tOuvrez le fichier.\r\nClose it.\tFermez-le.\tignored\n");
    Write("list",
          R"(text { direction: "en-de" both: true train: ["train.en", "train.de"] valid: ["train.en", "train.de"] }
                     text { direction: "en-fr" domain: "docs" both: true train: "docs.tsv" })");
  }
  // Prepares the list; ids stay below the vocabulary that three sentences give.
  absl::Status RunList() {
    const absl::StatusOr<TextSplits> splits = ReadCorporaList(Path("list"));
    if (!splits.ok()) return splits.status();
    options_.train = splits->train;
    options_.valid = splits->valid;
    options_.test = splits->test;
    return Run();
  }
  // The text of a sample's tokens, tags as such.
  std::string Tokens(const Corpus& corpus, std::span<const int32_t> ids) const {
    const Vocabulary vocabulary = LoadVocabularies(corpus)->target;
    std::string text;
    for (const int32_t id : ids) absl::StrAppend(&text, vocabulary.Token(id), " ");
    return text;
  }
};

TEST_F(CorporaListTest, EachDirectionIsACorpusOfItsOwn) {
  options_.tags = LanguageTags::kM2m100;
  ASSERT_EQ(RunList(), absl::OkStatus());
  const Corpus train = OpenCorpus("train");
  EXPECT_THAT(train.manifest().corpora, ElementsAre("en-de", "de-en", "en-fr docs", "fr-en docs"));
  ASSERT_EQ(train.size(), 3 + 3 + 2 + 2);
  EXPECT_TRUE(train.manifest().target_tags());
  EXPECT_EQ(train.manifest().tags, "m2m100");
  EXPECT_THAT(OpenCorpus("valid").manifest().corpora, ElementsAre("en-de", "de-en"));
  const auto expect = [&](int64_t i, int32_t corpus_id, const std::string& prefix, const std::string& tag) {
    const SampleView sample = train.sample(i);
    EXPECT_EQ(sample.corpus_id, corpus_id) << i;
    EXPECT_EQ(Tokens(train, sample.prefix), prefix) << i;
    EXPECT_THAT(Tokens(train, sample.target), ::testing::StartsWith(tag)) << i;
  };
  expect(0, 0, "__en__ ", "__de__ ");
  expect(3, 1, "__de__ ", "__en__ ");
  expect(6, 2, "__en__ ", "__fr__ ");
  expect(8, 3, "__fr__ ", "__en__ ");
  EXPECT_EQ(SourceText(train, 3), "Die Katze schläft.");
  EXPECT_EQ(TargetText(train, 3), "The cat sleeps.");
  EXPECT_EQ(SourceText(train, 7), "Close it.");
  EXPECT_EQ(TargetText(train, 7), "Fermez-le.");
  EXPECT_EQ(SourceText(train, 9), "Fermez-le.");
  EXPECT_THAT(out_.str(), HasSubstr("CRLF line ends removed, columns after the second ignored in 2 lines\n"));
}

TEST_F(CorporaListTest, DeepnetsTagIsTheTargetsBeforeTheSource) {
  options_.tags = LanguageTags::kDeepnet;
  ASSERT_TRUE(RunList().ok());
  const Corpus train = OpenCorpus("train");
  EXPECT_FALSE(train.manifest().target_tags());
  EXPECT_EQ(train.manifest().tags, "deepnet");
  EXPECT_EQ(Tokens(train, train.sample(3).prefix), "__en__ ");
  EXPECT_EQ(TargetText(train, 3), "The cat sleeps.");
  EXPECT_EQ(train.sample(3).target[0], LoadVocabularies(train)->target.Encode("The cat sleeps.")[0]);
}

// Twelve lines of Greek beside 1,200 of English: characters that a vocabulary of English words leaves out.
TEST_F(CorporaListTest, AVocabularyOfHighTemperatureKnowsSmallTexts) {
  std::string english, greek;
  for (int i = 0; i < 1200; ++i) english += absl::StrCat("the cat sees dog number ", i, "\n");
  for (int i = 0; i < 12; ++i) greek += "αβγ δεζ αβγ\n";
  Write("a", english);
  Write("b", greek);
  Write("list", R"(text { direction: "en-de" train: ["a", "a"] } text { direction: "el-en" train: ["b", "b"] })");
  options_.training.size = 60;
  const auto pieces = [&](double temperature) {
    options_.vocabulary_temperature = temperature;
    options_.overwrite = true;
    EXPECT_TRUE(RunList().ok()) << out_.str();
    return LoadVocabularies(OpenCorpus("train"))->source.Encode("αβγ δεζ αβγ").size();
  };
  EXPECT_LT(pieces(100), pieces(1));
}

TEST_F(CorporaListTest, TestTextMayLieInAnotherFolder) {
  Write("list", absl::StrCat("text { direction: \"en-de\" train: [\"train.en\", \"train.de\"] test: [\"",
                             Path("train.en"), "\", \"", Path("train.de"), "\"] }"));
  const TextSplits splits = ReadCorporaList(Path("list")).value();
  EXPECT_EQ(splits.test.at(0).target, Path("train.de"));
  EXPECT_THAT(splits.valid, ::testing::IsEmpty());
}

TEST_F(CorporaListTest, WhatIsWrongIsRefusedByName) {
  const auto refused = [&](const std::string& list, const std::string& why) {
    Write("list", list);
    const absl::Status status = RunList();
    EXPECT_FALSE(status.ok()) << list;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << list;
    EXPECT_FALSE(std::filesystem::exists(Path("out/train.json")));
  };
  refused("text { direction: \"en\" train: [\"train.en\", \"train.de\"] }", "\"en\" is no direction");
  refused("text { direction: \"en-de\" train: [\"train.en\", \"none.de\"] }", "none.de");
  refused("text { direction: \"en-de\" train: [\"train.en\", \"train.de\", \"x\"] }", "train has 3 files");
  refused("text { direction: \"en-de\" train: \"train.en\" }", "train.en:1: no tab");
  refused("text { directoin: \"en-de\" }", "direction");
  refused("text { train: [\"train.en\", \"train.de\"] }", "\"\" is no direction");
  refused("text { direction: \"en-de\" domain: \"news\" }", "list: en-de news has no files; give train, valid or test");
  Write("bad.tsv", "good\tgut\nbad\tschl\xE4\n");
  refused("text { direction: \"en-de\" train: \"bad.tsv\" }", "bad.tsv:2: not UTF-8 from byte 5 of column 2 on");
  refused("text { direction: \"en-de\" valid: [\"train.en\", \"train.de\"] }", "no training text");
  const std::string once = "text { direction: \"en-de\" train: [\"train.en\", \"train.de\"] } ";
  refused(once + once, "en-de is given twice");
  refused(once + "text { direction: \"de-en\" both: true train: [\"train.de\", \"train.en\"] }",
          "en-de is given twice");
  Write("empty", "\n\n");
  refused(once + "text { direction: \"en-fr\" train: [\"empty\", \"empty\"] }", "en-fr");
}

TEST_F(CorporaListTest, TagsNeedLanguages) {
  options_.tags = LanguageTags::kDeepnet;
  ExpectError({"--tags needs every text's languages", "train.en / train.de"});
}

TEST(TagsOption, KnowsFourWords) {
  LanguageTags tags = LanguageTags::kNone;
  const auto expect = [&](const std::string& word, LanguageTags expected) {
    CommandLine line("prepare", "");
    AddTagsOption(line.program(), tags, "none");
    EXPECT_EQ(line.Run({"--tags", word}), CommandLine::Outcome::kRan) << word;
    EXPECT_EQ(tags, expected) << word;
  };
  expect("m2m100", LanguageTags::kM2m100);
  expect("none", LanguageTags::kNone);
  expect("nllb", LanguageTags::kM2m100);
  expect("deepnet", LanguageTags::kDeepnet);
}

TEST_F(CorporaListTest, ATagOfALanguageWithoutTrainingTextIsRefused) {
  options_.tags = LanguageTags::kDeepnet;
  Write("list", R"(text { direction: "en-de" train: ["train.en", "train.de"] }
                   text { direction: "en-ed" valid: ["train.en", "train.de"] })");
  EXPECT_THAT(std::string(RunList().message()), HasSubstr("valid: en-ed: no training text is in \"ed\""));
  options_.tags = LanguageTags::kNone;
  EXPECT_TRUE(RunList().ok());
}

TEST_F(CorporaListTest, OpusTreesAreFound) {
  std::filesystem::create_directories(Path("opus-100-corpus/v1.0/supervised/de-en"));
  std::filesystem::create_directories(Path("opus-100-corpus/v1.0/zero-shot/de-fr"));
  const std::string stem = "opus-100-corpus/v1.0/supervised/de-en/opus.de-en-";
  for (const char* split : {"train", "dev", "test"}) {
    Write(absl::StrCat(stem, split, ".de"), kGerman);
    Write(absl::StrCat(stem, split, ".en"), kEnglish);
  }
  Write("opus-100-corpus/v1.0/zero-shot/de-fr/opus.de-fr-test.de", kGerman);
  EXPECT_THAT(std::string(FindOpusTexts(Path("opus-100-corpus")).status().message()),
              HasSubstr("opus.de-fr-test.fr is missing"));
  Write("opus-100-corpus/v1.0/zero-shot/de-fr/opus.de-fr-test.fr", kEnglish);
  const TextSplits splits = *FindOpusTexts(Path("opus-100-corpus"));
  const auto names = [](const std::vector<TextPair>& pairs) {
    std::vector<std::string> names;
    for (const TextPair& pair : pairs) names.push_back(CorpusName(pair));
    return names;
  };
  EXPECT_THAT(names(splits.train), ElementsAre("de-en", "en-de"));
  EXPECT_THAT(names(splits.valid), ElementsAre("de-en", "en-de"));
  EXPECT_THAT(names(splits.test), ElementsAre("de-en", "en-de", "de-fr", "fr-de"));
  EXPECT_THAT(splits.train[1].source, ::testing::EndsWith("opus.de-en-train.en"));
  EXPECT_THAT(std::string(FindOpusTexts(Path("out")).status().message()), HasSubstr(Path("out")));
  EXPECT_THAT(std::string(FindOpusTexts(Path("opus-100-corpus/v1.0/none")).status().message()), HasSubstr("none"));
  std::filesystem::create_directories(Path("empty"));
  EXPECT_THAT(std::string(FindOpusTexts(Path("empty")).status().message()), HasSubstr("no text as OPUS-100 has it"));
  std::filesystem::create_directories(Path("opus-100-corpus/en-de"));
  Write("opus-100-corpus/en-de/opus.en-de-train.en", kEnglish);
  Write("opus-100-corpus/en-de/opus.en-de-train.de", kGerman);
  EXPECT_THAT(std::string(FindOpusTexts(Path("opus-100-corpus")).status().message()), HasSubstr("is given twice"));
  std::filesystem::create_directories(Path("opus-100-corpus/older/en-de"));
  Write("opus-100-corpus/older/en-de/opus.en-de-dev.en", kEnglish);
  EXPECT_THAT(std::string(FindOpusTexts(Path("opus-100-corpus")).status().message()),
              HasSubstr("are of one direction"));
  // Folders that only look like directions do not matter; files that nothing would read do.
  std::filesystem::create_directories(Path("packed/en-fr"));
  std::filesystem::create_directories(Path("packed/raw-data"));
  std::filesystem::create_directories(Path("packed/more/raw-data"));
  const std::string packed = "packed/en-fr/opus.en-fr-train.";
  Write(packed + "fr.xz", kGerman);
  EXPECT_THAT(std::string(FindOpusTexts(Path("packed")).status().message()),
              HasSubstr("packed/en-fr has files opus.en-fr-*, but none for train, dev or test"));
  Write(packed + "en", kEnglish);
  Write(packed + "fr", kGerman);
  ASSERT_EQ(std::system(("gzip " + Path(packed + "fr")).c_str()), 0);
  EXPECT_THAT(FindOpusTexts(Path("packed")).value().train[0].target, ::testing::EndsWith("opus.en-fr-train.fr.gz"));
  Write("packed/en-fr/opus.fr-en-test.fr", kGerman);
  EXPECT_THAT(std::string(FindOpusTexts(Path("packed")).status().message()),
              HasSubstr("opus.fr-en-test.fr is not named after its folder"));
  std::filesystem::create_directories(Path("opus/en-pt-BR"));
  Write("opus/en-pt-BR/opus.en-pt-BR-train.en", kEnglish);
  EXPECT_THAT(std::string(FindOpusTexts(Path("opus")).status().message()), HasSubstr("opus.en-pt-BR-train.en: "));
  std::filesystem::create_directories(Path("tests/en-fr"));
  for (const char* language : {"en", "fr"}) Write(absl::StrCat("tests/en-fr/opus.en-fr-test.", language), kEnglish);
  EXPECT_EQ(FindOpusTexts(Path("tests")).value().test.size(), 2u) << "enough for hadal evaluate";
}

}  // namespace
}  // namespace hadal
