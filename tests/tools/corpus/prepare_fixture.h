// What tests of `hadal prepare` share: three sentences and their translations, options that prepare them, and a look at
// what came out.
#pragma once

#include <filesystem>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/prepare.h"

namespace hadal {

class PrepareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("train.en", kEnglish);
    Write("train.de", kGerman);
    options_.train = {{Path("train.en"), Path("train.de")}};
    options_.output = Path("out");
    options_.training.size = 60;
  }
  std::string Path(const std::string& name) const { return directory_ / name; }
  void Write(const std::string& name, const std::string& text) const { SetContents(Path(name), text); }
  std::string Read(const std::string& name) const { return Contents(Path(name)); }
  // 100 pairs, for vocabularies that need more text than the three sentences.
  void WriteLongText() const {
    std::string english, german;
    for (int i = 0; i < 100; ++i) {
      english += EnglishLine(i) + "\n";
      german += GermanLine(i) + "\n";
    }
    Write("train.en", english);
    Write("train.de", german);
  }
  static std::string EnglishLine(int i) { return Words(i, {"bar", "der", "fin", "go", "lus", "mo", "ni", "sta"}); }
  static std::string GermanLine(int i) { return Words(i, {"bäu", "chen", "dru", "ge", "löf", "mur", "schi", "zu"}); }
  absl::Status Run() {
    out_.str("");
    return RunPrepare(options_, out_);
  }
  // The run must fail with a message that holds each of `parts`.
  void ExpectError(const std::vector<std::string>& parts) {
    const absl::Status status = Run();
    ASSERT_FALSE(status.ok());
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
    EXPECT_FALSE(std::filesystem::exists(Path("out/train.json")));
  }
  Corpus OpenCorpus(const std::string& split) const { return *Corpus::Open(Path("out/" + split)); }
  std::string SourceText(const Corpus& corpus, int64_t i) const {
    return LoadVocabularies(corpus)->source.Decode(corpus.sample(i).source);
  }
  std::string TargetText(const Corpus& corpus, int64_t i) const {
    return LoadVocabularies(corpus)->target.Decode(corpus.sample(i).target);
  }

  // Six made-up words of two or three syllables, drawn by a generator that i seeds.
  static std::string Words(int i, const std::vector<std::string>& syllables) {
    std::minstd_rand draw(i + 1);
    draw.discard(10);
    std::string words;
    for (int word = 0; word < 6; ++word) {
      if (word > 0) words += ' ';
      for (unsigned rest = 2 + draw() % 2; rest > 0; --rest) words += syllables[draw() % syllables.size()];
    }
    return words;
  }

  static constexpr char kEnglish[] = "The cat sleeps.\nThe dog eats the fish.\nA man reads.\n";
  static constexpr char kGerman[] = "Die Katze schläft.\nDer Hund frisst den Fisch.\nEin Mann liest.\n";

  TemporaryDirectory directory_;
  PrepareOptions options_;
  std::ostringstream out_;
};

}  // namespace hadal
