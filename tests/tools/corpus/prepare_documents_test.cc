// `hadal prepare --block`: documents become blocks of one stream. With a tokenizer.json:
// tests/tools/python/documents_test.py.
#include <string>
#include <vector>

#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

class PrepareDocumentsTest : public PrepareTest {
 protected:
  void SetUp() override {
    options_.output = Path("out");
    options_.monolingual = true;
    options_.training = {.algorithm = PieceAlgorithm::kWord, .size = 0};
    options_.block = 3;
    Write("train.txt", "a b\nc\n\nd\n\ne f\n");
    options_.train = {{.target = Path("train.txt"), .blank_lines = true}};
  }
  // The tokens of each block, as text.
  std::vector<std::string> Blocks(const std::string& split = "train") const {
    const Corpus corpus = OpenCorpus(split);
    const Vocabulary vocabulary = LoadVocabularies(corpus)->target;
    std::vector<std::string> blocks;
    for (int64_t i = 0; i < corpus.size(); ++i) {
      std::string& text = blocks.emplace_back();
      for (const int32_t id : corpus.sample(i).target) text += (text.empty() ? "" : " ") + vocabulary.Token(id);
    }
    return blocks;
  }
};

TEST_F(PrepareDocumentsTest, ABlockBeginsWithTheLastTokenOfTheBlockBefore) {
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(Blocks(), ::testing::ElementsAre("a b c </s>", "</s> d </s> e", "e f </s>"));
  EXPECT_THAT(out_.str(), HasSubstr("read train: 3 documents"));
  EXPECT_THAT(out_.str(), HasSubstr("3 blocks of 3 tokens; kept 1 shorter ones, the last of each file; 8 tokens"));
  const CorpusManifest manifest = OpenCorpus("train").manifest();
  EXPECT_EQ(manifest.form, (TextForm{.block = 3}));
  EXPECT_EQ(manifest.statistics.longest_target, 3);
}

TEST_F(PrepareDocumentsTest, EachFileIsAStreamOfItsOwn) {
  Write("more.jsonl", "{\"text\": \"g\"}\n{\"text\": \" \"}\n{\"text\": \"h i j\"}\n");
  options_.train.push_back({.target = Path("more.jsonl")});
  options_.document_mask = true;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(Blocks(), ::testing::ElementsAre("a b c </s>", "</s> d </s> e", "e f </s>", "g </s> h i", "i j </s>"));
  EXPECT_EQ(OpenCorpus("train").sample(3).corpus_id, 1);
  EXPECT_TRUE(OpenCorpus("train").manifest().form.document_mask);
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1 of 6 (16.7%): 1 empty"));
}

TEST_F(PrepareDocumentsTest, OptionsThatContradictAreRefused) {
  options_.block = 0;
  options_.document_mask = true;
  ExpectError({"--document-mask cuts blocks", "--block N"});
  options_.document_mask = false;
  options_.end_token = "</s>";
  ExpectError({"--end-token", "--tokenizer"});
  options_.end_token.clear();
  Write("dict.txt", "a 1\n");
  options_.tokenizer = Path("dict.txt");
  ExpectError({"dict.txt is no tokenizer.json"});
  options_.tokenizer.clear();
  Write("ids.bin", "");
  options_.train = {{.target = Path("ids.bin")}};
  ExpectError({"ids.bin is named as Megatron-LM's", "--tokenizer"});
  options_.monolingual = false;
  options_.block = 3;
  ExpectError({"--monolingual"});
}

}  // namespace
}  // namespace hadal
