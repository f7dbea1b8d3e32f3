// What tests of `hadal prepare` share: three sentences and their translations, options that prepare them, and a look at
// what came out.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/corpus.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/prepare.h"
#include "tools/synthetic/synthetic_corpus.h"

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
  // More text than the three sentences, for vocabularies that need it.
  void WriteSyntheticText() const {
    std::string english, german;
    for (uint64_t i = 0; i < 100; ++i) {
      const SyntheticPair pair = MakeSyntheticPair(1, i);
      english += pair.english + "\n";
      german += pair.german + "\n";
    }
    Write("train.en", english);
    Write("train.de", german);
  }
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

  static constexpr char kEnglish[] = "The cat sleeps.\nThe dog eats the fish.\nA man reads.\n";
  static constexpr char kGerman[] = "Die Katze schläft.\nDer Hund frisst den Fisch.\nEin Mann liest.\n";

  TemporaryDirectory directory_;
  PrepareOptions options_;
  std::ostringstream out_;
};

}  // namespace hadal
