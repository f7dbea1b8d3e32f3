// A list of test sets to files and translations, on any number of ranks; what is refused; what is not done twice.
// A stand-in for Python is called for the scores.
#include "tools/evaluate/evaluate.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/corpus.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/files.h"
#include "tests/support/saved_model.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class EvaluateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetContents(directory_ / "python", "#!/bin/sh\necho \"$@\" > \"$0.words\"\n");
    std::filesystem::permissions(directory_ / "python", std::filesystem::perms::owner_all);
    setenv("HADAL_PYTHON", (directory_ / "python").c_str(), 1);
    Save(/*shift=*/0);
    SetContents(directory_ / "a", "the old cat\n\na dog\n");
    SetContents(directory_ / "b", "the mat\na dog\n\n");
    SetContents(directory_ / "list",
                R"(text { direction: "en-de" both: true domain: "cats & dogs" test: ["a", "b"] })");
    options_.checkpoint = directory_ / "run";
    options_.list = directory_ / "list";
    options_.folder = directory_ / "out";
    options_.tags = LanguageTags::kM2m100;
    options_.beam.max_length_b = 10;
  }

  // Saves a model of which one weight is moved by `shift`, in place of the one before.
  void Save(float shift) {
    const Vocabulary vocabulary =
        *AddLanguageTags(*TrainVocabulary({.size = 40}, {"the old cat sat", "a dog", "the mat"}), {"en", "de"});
    const auto train = [shift](Engine& engine) {
      engine.stage().parameters().WeightVector(0)[0] += shift;
      return int64_t{1};
    };
    ASSERT_TRUE(RemoveTree(directory_ / "run").ok());
    ASSERT_EQ(
        SaveModel({.model = testing::SmallModel(
                       ResidualMethod::kDeepNorm,
                       {.encoder_layers = 1, .decoder_layers = 1, .d_model = 16, .vocabulary = vocabulary.size()}),
                   .vocabularies = {VocabularyFile("vocabulary", vocabulary)},
                   .inputs = {.tags = tags_},
                   .train = train},
                  directory_ / "run"),
        absl::OkStatus());
  }

  absl::Status Evaluate(int ranks = 1) {
    std::ostringstream log;
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      std::istringstream none;
      std::ostringstream nowhere;
      const bool is_main = c.rank() == 0;
      return RunEvaluate(options_, c, Stream::Cpu(1), {none, nowhere, is_main ? log : nowhere});
    });
    log_ = log.str();
    return status;
  }

  void ExpectRefused(const std::string& list, const std::string& message) {
    SetContents(directory_ / "list", list);
    const absl::Status status = Evaluate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_FALSE(PathExists(directory_ / "python.words"));
  }

  nlohmann::json TestSet(int index) { return nlohmann::json::parse(Read("out/test_sets.json"))["test_sets"][index]; }

  std::string Read(const std::string& name) { return ReadFile(directory_ / name, 1 << 20).value_or("(missing)"); }

  const TemporaryDirectory directory_;
  EvaluateOptions options_;
  std::string log_;
  std::string tags_;  // what the checkpoint knows
};

TEST_F(EvaluateTest, ACheckpointThatKnowsItsTagsUsesThem) {
  ASSERT_TRUE(Evaluate().ok());
  const std::string given = Read("out/en-de.cats...dogs.hypothesis");
  tags_ = "m2m100";
  Save(/*shift=*/0);
  options_.tags.reset();
  options_.folder = directory_ / "known";
  ASSERT_TRUE(Evaluate(/*ranks=*/2).ok());
  EXPECT_EQ(Read("known/en-de.cats...dogs.hypothesis"), given);
  options_.tags = LanguageTags::kDeepnet;
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("trained with language tags of the preset m2m100"));
}

TEST_F(EvaluateTest, TranslationsAreTheSameOnEveryNumberOfRanks) {
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_EQ(Read("out/en-de.cats...dogs.source"), "the old cat\n\na dog\n");
  EXPECT_EQ(Read("out/de-en.cats...dogs.source"), "the mat\na dog\n\n");
  EXPECT_EQ(Read("out/de-en.cats...dogs.reference"), "the old cat\n\na dog\n");
  const std::string hypotheses = Read("out/en-de.cats...dogs.hypothesis");
  EXPECT_EQ(std::count(hypotheses.begin(), hypotheses.end(), '\n'), 3);
  EXPECT_THAT(hypotheses, HasSubstr("\n\n")) << "a blank source has a blank translation";
  EXPECT_THAT(hypotheses, Not(HasSubstr("__")));
  EXPECT_EQ(TestSet(1), (nlohmann::json{{"name", "de-en cats & dogs"},
                                        {"source", "de"},
                                        {"target", "en"},
                                        {"files", "de-en.cats...dogs"},
                                        {"segments", 3},
                                        {"empty_segments", 2},
                                        {"tokenizer", "13a"}}));

  const std::string other = Read("out/de-en.cats...dogs.hypothesis");
  options_.folder = directory_ / "two";
  ASSERT_TRUE(Evaluate(/*ranks=*/2).ok());
  EXPECT_EQ(Read("two/en-de.cats...dogs.hypothesis"), hypotheses);
  EXPECT_EQ(Read("two/de-en.cats...dogs.hypothesis"), other);
}

TEST_F(EvaluateTest, BleuTakesTheTokenizerOfTheTarget) {
  options_.tags = LanguageTags::kNone;
  SetContents(directory_ / "list", R"(text { direction: "en-zh" test: ["a", "b"] })");
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_EQ(TestSet(0)["tokenizer"], "zh");
}

TEST_F(EvaluateTest, ScoresAreMadeOfTheFolderAndTheOtherSystems) {
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(Read("python.words"), EndsWith(absl::StrCat("evaluate ", options_.folder, " --pivot en\n")));
  options_.against = directory_ / "out";
  options_.folder = directory_ / "better";
  options_.pivot = "de";
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(Read("python.words"), HasSubstr(absl::StrCat("better --pivot de --against ", options_.against)));
  options_.against = directory_ / "nowhere";
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("nowhere has no translation of these test sets"));
}

TEST_F(EvaluateTest, TrainingPairsAreOfAllDomains) {
  const VocabularyReference vocabulary{.file = "v.txt", .size = 50};
  CorpusWriter writer = CorpusWriter::Create({.prefix = directory_ / "train",
                                              .source_vocabulary = vocabulary,
                                              .target_vocabulary = vocabulary,
                                              .corpora = {"en-de x", "en-de y", "de-en x"}})
                            .value();
  for (const int32_t corpus : {0, 0, 1}) {
    const Sample sample{.corpus_id = corpus, .prefix = {}, .source = {5}, .target = {6}};
    ASSERT_TRUE(writer.Add(sample.view()).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  options_.train_corpus = directory_ / "train";
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_EQ(TestSet(0)["training_pairs"], 3);
  EXPECT_EQ(TestSet(1)["training_pairs"], 0);
}

TEST_F(EvaluateTest, TranslatesAgainOnlyWhatHasChanged) {
  ASSERT_TRUE(Evaluate().ok());
  const std::string hypothesis = Read("out/de-en.cats...dogs.hypothesis");
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, HasSubstr("2 test sets were translated before"));
  SetContents(directory_ / "out/de-en.cats...dogs.hypothesis", "of another model\n\n\n");
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, HasSubstr("1 test sets were translated before"));
  EXPECT_EQ(Read("out/de-en.cats...dogs.hypothesis"), hypothesis);
  options_.beam.length_penalty = 0.1;
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, Not(HasSubstr("translated before")));
  SetContents(directory_ / "a", "a dog\n\nthe mat\n");  // the source of en-de
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, HasSubstr("1 test sets were translated before"));
  Save(/*shift=*/1);
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, Not(HasSubstr("translated before"))) << "another model in the same place";
  const auto change = [&](auto& option, auto value) {
    option = value;
    ASSERT_TRUE(Evaluate().ok());
    EXPECT_THAT(log_, Not(HasSubstr("translated before"))) << value;
  };
  change(options_.beam.beam, 2);
  change(options_.beam.max_length_a, 0.5);
  change(options_.beam.max_length_b, 9);
  change(options_.beam.min_length, 3);
  change(options_.beam.no_repeat_ngram, 5);
  change(options_.decoder.longest_source, 60);
}

TEST_F(EvaluateTest, RefusesBadTestSetsByName) {
  SetContents(directory_ / "short", "a dog\n");
  SetContents(directory_ / "empty", "");
  ExpectRefused(R"(text { direction: "en-de" train: ["a", "b"] })", "has no test sets");
  ExpectRefused(R"(text { direction: "en-de" test: ["a", "short"] })", "en-de: ");
  ExpectRefused(R"(text { direction: "en-de" test: ["empty", "empty"] })", "en-de: the test set is empty");
  ExpectRefused(R"(text { direction: "en-fr" test: ["a", "b"] })", "no language tag __fr__");
  ExpectRefused(R"(text { direction: "en-de" domain: "a b" test: ["a", "b"] }
                   text { direction: "en-de" domain: "a.b" test: ["a", "b"] })",
                "en-de a.b: another test set's files have this name, too: en-de.a.b");
  SetContents(directory_ / "list", R"(text { direction: "en-de" test: ["a", "missing"] })");
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("missing"));
  SetContents(directory_ / "list", absl::StrCat("text { direction: \"en-de\" test: [\"a\", \"b\"] domain: \"",
                                                std::string(300, 'a'), "\" }"));
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("File name too long"));
}

TEST_F(EvaluateTest, DomainsInAnyScriptHaveFilesOfTheirOwn) {
  SetContents(directory_ / "list", R"(text { direction: "en-de" domain: "新闻" test: ["a", "b"] }
                                      text { direction: "en-de" domain: "維基" test: ["a", "b"] })");
  EXPECT_EQ(Evaluate(), absl::OkStatus());
  EXPECT_TRUE(PathExists(directory_ / "out/en-de.維基.hypothesis"));
}

TEST_F(EvaluateTest, TestSetsAreNotWrittenOver) {
  ASSERT_TRUE(Evaluate().ok());
  const std::string source = Read("out/en-de.cats...dogs.source"),
                    hypothesis = Read("out/en-de.cats...dogs.hypothesis");
  const std::string first = R"(text { direction: "en-de" domain: "cats & dogs" test: )";
  for (const std::string& list :
       {first + R"(["out/en-de.cats...dogs.source", "b"] })",
        first + R"(["b", "a"] } text { direction: "de-en" test: ["b", "out/en-de.cats...dogs.source"] })",
        first + R"(["b", "a"] } text { direction: "de-en" test: ["out/en-de.cats...dogs.hypothesis", "a"] })",
        first + R"(["b", "a"] } text { direction: "de-en" test: ["b", "out/test_sets.json"] })"}) {
    SetContents(directory_ / "list", list);
    const absl::Status status = Evaluate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << list;
    EXPECT_THAT(std::string(status.message()), HasSubstr("which is an input"));
  }
  options_.list = directory_ / "out/evaluation.json";
  SetContents(options_.list, first + R"(["b", "a"] })");
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("evaluation.json, which is an input"));
  EXPECT_EQ(Read("out/en-de.cats...dogs.source"), source);
  EXPECT_EQ(Read("out/en-de.cats...dogs.hypothesis"), hypothesis);
}

// Other files: outputs_test.py.
TEST_F(EvaluateTest, ALinkInPlaceOfItsOwnFileStays) {
  ASSERT_TRUE(Evaluate().ok());
  SetContents(directory_ / "mine", "mine");
  ASSERT_TRUE(RemoveTree(directory_ / "out/en-de.cats...dogs.hypothesis").ok());
  std::filesystem::create_symlink(directory_ / "mine", directory_ / "out/en-de.cats...dogs.hypothesis");
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("hypothesis was not written by hadal evaluate"));
  EXPECT_EQ(Read("mine"), "mine");
}

}  // namespace
}  // namespace hadal
