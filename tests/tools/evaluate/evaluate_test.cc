// A list of test sets to files, scores and reports, on any number of ranks; what is refused; what is not done twice.
#include "tools/evaluate/evaluate.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/chrf.h"
#include "runtime/data/corpus.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/files.h"
#include "tests/support/saved_model.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"
#include "tools/evaluate/evaluation.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EvaluateTest : public ::testing::Test {
 protected:
  void SetUp() override {
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
    const absl::Status saved =
        SaveModel({.model = testing::SmallModel(
                       ResidualMethod::kDeepNorm,
                       {.encoder_layers = 1, .decoder_layers = 1, .d_model = 16, .vocabulary = vocabulary.size()}),
                   .vocabularies = {VocabularyFile("vocabulary", vocabulary)},
                   .train = train},
                  directory_ / "run");
    ASSERT_TRUE(saved.ok()) << saved;
  }

  absl::Status Evaluate(int ranks = 1) {
    std::ostringstream out, log;
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      std::istringstream none;
      std::ostringstream nowhere;
      const bool is_main = c.rank() == 0;
      return RunEvaluate(options_, c, Stream::Cpu(1), {none, is_main ? out : nowhere, is_main ? log : nowhere});
    });
    out_ = out.str();
    log_ = log.str();
    return status;
  }

  void ExpectRefused(const std::string& list, const std::string& message) {
    SetContents(directory_ / "list", list);
    const absl::Status status = Evaluate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_FALSE(PathExists(directory_ / "out/report.md"));
  }

  std::string Read(const std::string& name) { return ReadFile(directory_ / name, 1 << 20).value_or("(missing)"); }

  const TemporaryDirectory directory_;
  EvaluateOptions options_;
  std::string out_, log_;
};

TEST_F(EvaluateTest, WritesFilesAndReportsTheSameOnEveryNumberOfRanks) {
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_EQ(Read("out/en-de.cats...dogs.source"), "the old cat\n\na dog\n");
  EXPECT_EQ(Read("out/de-en.cats...dogs.source"), "the mat\na dog\n\n");
  EXPECT_EQ(Read("out/de-en.cats...dogs.reference"), "the old cat\n\na dog\n");
  const std::string hypotheses = Read("out/en-de.cats...dogs.hypothesis");
  EXPECT_EQ(std::count(hypotheses.begin(), hypotheses.end(), '\n'), 3);
  EXPECT_THAT(hypotheses, HasSubstr("\n\n")) << "a blank source has a blank translation";
  EXPECT_THAT(hypotheses, Not(HasSubstr("__")));
  EXPECT_EQ(out_, Read("out/report.md"));
  EXPECT_THAT(Read("out/report.html"), HasSubstr("<svg"));
  const nlohmann::json json = nlohmann::json::parse(Read("out/evaluation.json"));
  EXPECT_EQ(json["test_sets"][1]["name"], "de-en cats & dogs");
  EXPECT_EQ(json["test_sets"][1]["empty_segments"], 2);

  const std::string other = Read("out/de-en.cats...dogs.hypothesis");
  options_.folder = directory_ / "two";
  ASSERT_TRUE(Evaluate(/*ranks=*/2).ok());
  EXPECT_EQ(Read("two/en-de.cats...dogs.hypothesis"), hypotheses);
  EXPECT_EQ(Read("two/de-en.cats...dogs.hypothesis"), other);
}

TEST_F(EvaluateTest, BleuIsOfTheTargetsLanguage) {
  options_.tags = LanguageTags::kNone;
  SetContents(directory_ / "list", R"(text { direction: "en-zh" test: ["a", "b"] })");
  ASSERT_TRUE(Evaluate().ok());
  const nlohmann::json set = nlohmann::json::parse(Read("out/evaluation.json"))["test_sets"][0];
  EXPECT_EQ(set["bleu_signature"], BleuSignature(1, BleuTokenizer::kZh));
}

TEST_F(EvaluateTest, TrainingPairsAreOfAllDomains) {
  const VocabularyReference vocabulary{.file = "v.txt", .size = 50};
  absl::StatusOr<CorpusWriter> writer = CorpusWriter::Create({.prefix = directory_ / "train",
                                                              .source_vocabulary = vocabulary,
                                                              .target_vocabulary = vocabulary,
                                                              .corpora = {"en-de x", "en-de y", "de-en x"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const int32_t corpus : {0, 0, 1}) {
    const Sample sample{.corpus_id = corpus, .prefix = {}, .source = {5}, .target = {6}};
    ASSERT_TRUE(writer->Add(sample.view()).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  options_.train_corpus = directory_ / "train";
  ASSERT_TRUE(Evaluate().ok());
  const nlohmann::json sets = nlohmann::json::parse(Read("out/evaluation.json"))["test_sets"];
  EXPECT_EQ(sets[0]["training_pairs"], 3);
  EXPECT_EQ(sets[1]["training_pairs"], 0);
}

// A program in the place of Python writes the classifier's answer.
TEST_F(EvaluateTest, SharesOfWrongLanguagesAreTheClassifiers) {
  SetContents(directory_ / "python",
              "#!/bin/sh\nprintf %s '{\"classifier\":\"c\",\"en-de.cats...dogs\":"
              "{\"hypothesis\":0.5,\"reference\":0.25}}' > \"$4/languages.json\"\n");
  std::filesystem::permissions(directory_ / "python", std::filesystem::perms::owner_all);
  setenv("HADAL_PYTHON", (directory_ / "python").c_str(), 1);
  ASSERT_TRUE(Evaluate().ok());
  unsetenv("HADAL_PYTHON");
  const nlohmann::json set = nlohmann::json::parse(Read("out/evaluation.json"))["test_sets"][0];
  EXPECT_EQ(set["wrong_language"], 0.5);
  EXPECT_EQ(set["wrong_language_reference"], 0.25);
}

TEST_F(EvaluateTest, TranslatesAgainOnlyWhatHasChanged) {
  ASSERT_TRUE(Evaluate().ok());
  SetContents(directory_ / "out/de-en.cats...dogs.hypothesis", "kept\n\n\n");
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, HasSubstr("2 test sets were translated before"));
  EXPECT_EQ(Read("out/de-en.cats...dogs.hypothesis"), "kept\n\n\n");
  options_.beam.length_penalty = 0.1;
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, Not(HasSubstr("translated before")));
  EXPECT_NE(Read("out/de-en.cats...dogs.hypothesis"), "kept\n\n\n");
  SetContents(directory_ / "a", "a dog\n\nthe mat\n");  // the source of en-de
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, HasSubstr("1 test sets were translated before"));
  Save(/*shift=*/1);
  ASSERT_TRUE(Evaluate().ok());
  EXPECT_THAT(log_, Not(HasSubstr("translated before"))) << "another model in the same place";
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
  const absl::Status status = Evaluate();
  EXPECT_TRUE(status.ok()) << status;
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
        first + R"(["b", "a"] } text { direction: "de-en" test: ["b", "out/report.md"] })"}) {
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

TEST_F(EvaluateTest, ComparesWithAnotherEvaluationOfTheSameTestSets) {
  ASSERT_TRUE(Evaluate().ok());
  options_.against = directory_ / "out";
  options_.folder = directory_ / "better";
  ASSERT_TRUE(Evaluate().ok());
  SetContents(directory_ / "better/de-en.cats...dogs.hypothesis", "the old cat\n\na dog\n");
  ASSERT_TRUE(Evaluate().ok());
  const nlohmann::json mean = nlohmann::json::parse(Read("better/evaluation.json"))["means"][0];
  EXPECT_EQ(mean["compared"], 2);
  SetContents(directory_ / "out/de-en.cats...dogs.reference", "another\n");
  EXPECT_THAT(std::string(Evaluate().message()), HasSubstr("compare systems on the same test sets"));
}

TEST(ScoreFiles, ChineseIsScoredByItsCharacters) {
  const std::string hypothesis = "我们昨天看到了黑色的猫。", reference = "你们昨天看到了黑色的猫。";
  const TemporaryDirectory directory;
  SetContents(directory / "hypotheses", hypothesis + "\n");
  SetContents(directory / "references", reference + "\n");
  const ScoredFiles files = {.hypotheses = directory / "hypotheses", .references = directory / "references"};
  TestSetScores scores = {.tokenizer = BleuTokenizer::kZh};
  ASSERT_TRUE(ScoreFiles(files, scores).ok());
  EXPECT_EQ(scores.segments, 1);
  EXPECT_GT(scores.bleu, 50);
  EXPECT_EQ(scores.bleu_13a, 0) << "one word, another one";
  EXPECT_EQ(scores.chrf, ChrfFromCounts(CountChrfMatches(hypothesis, {&reference, 1}, kChrfMostWordOrder)));
  EXPECT_FALSE(scores.other.has_value());
}

TEST(ScoreFiles, AnotherSystemIsComparedByItsOwnTranslations) {
  std::string good, poor;
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&good, "there are ", i, " words in this line of the text\n");
    absl::StrAppend(&poor, "there are ", i, " words at this line of a text\n");
  }
  const TemporaryDirectory folder;
  SetContents(folder / "good", good);
  SetContents(folder / "poor", poor);
  const ScoredFiles files = {.hypotheses = folder / "good", .references = folder / "good", .other = folder / "poor"};
  TestSetScores scores;
  ASSERT_TRUE(ScoreFiles(files, scores).ok());
  EXPECT_EQ(scores.segments, 60);
  EXPECT_NEAR(scores.bleu, 100, 1e-9);
  ASSERT_TRUE(scores.other.has_value());
  EXPECT_LT(scores.other->bleu, 90);
  EXPECT_LT(scores.other->p_value, 0.05);
}

TEST(Evaluation, ReportsNameEachDirectionsNumbers) {
  TestSetScores there = {.name = "en-de", .direction = {"en", "de"}, .segments = 1234, .bleu = 10, .bleu_13a = 11};
  there.chrf = 42.5;
  there.wrong_language = 0.5;
  there.wrong_language_reference = 0.25;
  there.training_pairs = 50'000;
  there.other = {.bleu = 9, .p_value = 0.01};
  const TestSetScores back = {.name = "de-en", .direction = {"de", "en"}, .bleu = 20};
  const Evaluation evaluation = {.checkpoint = "run", .other = "base", .sets = {there, back}};
  const std::string page = EvaluationHtml(evaluation);
  EXPECT_THAT(page, HasSubstr("<title>en→de 10.0</title>"));
  EXPECT_THAT(page, HasSubstr("<title>de→en 20.0</title>"));
  TestSetScores domain = there;
  domain.bleu = 20;
  EXPECT_THAT(EvaluationHtml({.checkpoint = "run", .sets = {there, domain}}), HasSubstr("<title>en→de 15.0</title>"));
  EXPECT_THAT(EvaluationMarkdown(evaluation),
              HasSubstr("| en-de | 1,234 | 50,000 | 10.0 | 13a | 11.0 | 42.5 | 50.0% | 25.0% | 9.0 | 0.010 |\n"));
  EXPECT_THAT(EvaluationMarkdown(evaluation),
              HasSubstr("\n| en→xx | 1 | 10.0 | 11.0 | 42.5 | 50.0% | 1 of 1 | 1 | 0 |\n"));
}

TEST(Evaluation, JsonHasEveryNumberUnderItsName) {
  const TestSetScores full = {.name = "en-de news",
                              .stem = "en-de.news",
                              .direction = {"en", "de"},
                              .segments = 12,
                              .empty_segments = 1,
                              .tokenizer = BleuTokenizer::kZh,
                              .bleu = 10,
                              .bleu_13a = 11,
                              .chrf = 42.5,
                              .wrong_language = 0.5,
                              .wrong_language_reference = 0.25,
                              .training_pairs = 50'000,
                              .other = OtherSystem{.bleu = 9, .p_value = 0.01}};
  const TestSetScores bare = {.name = "de-en",
                              .stem = "de-en",
                              .direction = {"de", "en"},
                              .segments = 3,
                              .bleu = 40,
                              .bleu_13a = 9,
                              .chrf = 7.5};
  TestSetScores better = bare, worse = bare;  // neither significantly
  better.other = {.bleu = 39, .p_value = 0.2};
  worse.other = {.bleu = 41, .p_value = 0.2};
  const nlohmann::json json = nlohmann::json::parse(
      EvaluationJson({.checkpoint = "run", .other = "base", .sets = {full, better, worse, bare}}));
  EXPECT_EQ(json["checkpoint"], "run");
  EXPECT_EQ(json["other"], "base");
  EXPECT_EQ(json["chrf_signature"], ChrfSignature(1, kChrfMostWordOrder));
  EXPECT_EQ(json["test_sets"][0], (nlohmann::json{{"name", "en-de news"},
                                                  {"source", "en"},
                                                  {"target", "de"},
                                                  {"files", "en-de.news"},
                                                  {"segments", 12},
                                                  {"empty_segments", 1},
                                                  {"bleu", 10},
                                                  {"bleu_signature", BleuSignature(1, BleuTokenizer::kZh)},
                                                  {"bleu_13a", 11},
                                                  {"chrf", 42.5},
                                                  {"wrong_language", 0.5},
                                                  {"wrong_language_reference", 0.25},
                                                  {"training_pairs", 50'000},
                                                  {"other", {{"bleu", 9}, {"p_value", 0.01}}}}));
  EXPECT_EQ(json["test_sets"][3], (nlohmann::json{{"name", "de-en"},
                                                  {"source", "de"},
                                                  {"target", "en"},
                                                  {"files", "de-en"},
                                                  {"segments", 3},
                                                  {"empty_segments", 0},
                                                  {"bleu", 40},
                                                  {"bleu_signature", BleuSignature(1, BleuTokenizer::k13a)},
                                                  {"bleu_13a", 9},
                                                  {"chrf", 7.5}}));
  EXPECT_EQ(json["means"][0], (nlohmann::json{{"what", "all"},
                                              {"directions", 4},
                                              {"bleu", 32.5},
                                              {"bleu_13a", 9.5},
                                              {"chrf", 16.25},
                                              {"wrong_language", 0.5},
                                              {"compared", 3},
                                              {"wins", 2},
                                              {"significant_wins", 1},
                                              {"significant_losses", 0}}));
}

TEST(Evaluation, MeansAreOfTheDirectionsThatTheyName) {
  std::vector<TestSetScores> sets = {
      {.name = "en-de", .direction = {"en", "de"}, .bleu = 10, .wrong_language = 0.5, .training_pairs = 50'000},
      {.name = "de-en", .direction = {"de", "en"}, .bleu = 20, .training_pairs = 1'000'000},
      {.name = "de-fr", .direction = {"de", "fr"}, .bleu = 60, .training_pairs = 0}};
  sets[0].other = {.bleu = 9, .p_value = 0.01};
  sets[1].other = {.bleu = 25, .p_value = 0.2};
  sets[2].other = {.bleu = 61, .p_value = 0.04};
  std::map<std::string, double> found;
  const std::vector<EvaluationMean> means = MeansOf(sets, "en");
  for (const EvaluationMean& mean : means) found[mean.what] = mean.bleu;
  EXPECT_EQ(found, (std::map<std::string, double>{{"all", 30},
                                                  {"en→xx", 10},
                                                  {"xx→en", 20},
                                                  {"without en", 60},
                                                  {"zero-shot: no training pairs", 60},
                                                  {"fewer than 100,000 training pairs", 10},
                                                  {"900,000 training pairs or more", 20}}));
  EXPECT_EQ(means[0].wins, 1);
  EXPECT_EQ(means[0].compared, 3);
  EXPECT_EQ(means[0].significant_wins, 1);
  EXPECT_EQ(means[0].significant_losses, 1);
  EXPECT_EQ(means[0].wrong_language, 0.5);
  sets[0].training_pairs = 100'000;
  sets[1].training_pairs = 899'999;
  const EvaluationMean last = MeansOf(sets, "en").back();
  EXPECT_EQ(last.what, "100,000 to 900,000 training pairs");
  EXPECT_EQ(last.bleu, 15);
  for (const EvaluationMean& mean : MeansOf(sets, "eng_Latn")) EXPECT_NE(mean.what, "without eng_Latn");
}

}  // namespace
}  // namespace hadal
