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
  EXPECT_THAT(Blocks(), ::testing::ElementsAre("</s> a b c", "c </s> d </s>", "</s> e f </s>"));
  EXPECT_THAT(out_.str(), HasSubstr("read train: 3 documents"));
  EXPECT_THAT(out_.str(), HasSubstr("3 blocks of 3 tokens; kept 0 shorter ones, the last of each file; 9 tokens"));
  const CorpusManifest manifest = OpenCorpus("train").manifest();
  EXPECT_EQ(manifest.form, (TextForm{.block = 3}));
  EXPECT_EQ(manifest.statistics.longest_target, 3);
}

TEST_F(PrepareDocumentsTest, EachFileIsAStreamOfItsOwn) {
  Write("more.jsonl", "{\"text\": \"g\"}\n{\"text\": \" \"}\n{\"text\"\n{\"text\": \"h i j\"}\n");
  Write("array.json", "[\n {\"text\": \"a\"}\n]\n");
  options_.train.push_back({.target = Path("array.json")});
  ExpectError({"array.json is a JSON array", "jq -c"});
  Write("array.json", "\xEF\xBB\xBF [{\"text\": \"a\"}]");
  ExpectError({"array.json is a JSON array", "--text-field ''"});
  options_.train[1].target = Path("more.jsonl");
  options_.document_mask = true;
  ExpectError({"more.jsonl:3: not valid", "--on-invalid skip"});
  options_.on_invalid = BadLine::kSkip;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(Blocks(),
              ::testing::ElementsAre("</s> a b c", "c </s> d </s>", "</s> e f </s>", "</s> g </s> h", "h i j </s>"));
  EXPECT_EQ(OpenCorpus("train").sample(3).corpus_id, 1);
  EXPECT_TRUE(OpenCorpus("train").manifest().form.document_mask);
  EXPECT_THAT(out_.str(), HasSubstr("skipped 2 of 7 (28.6%): 1 empty, 1 not UTF-8 or broken JSON"));
  Write("array.json", "[{\"text\": \"a\"}]\n\n[{\"text\": \"b\"}]\n");
  options_.train[1].target = Path("array.json");
  options_.overwrite = true;
  EXPECT_EQ(Run(), absl::OkStatus()) << "lines of text";
}

// Of a text with a mask token, in sentences and in blocks.
TEST_F(PrepareDocumentsTest, TheCorpusSaysWhichTokensContinueAWord) {
  WriteLongText();
  options_.train = {{.target = Path("train.en")}};
  options_.training = {.size = 60};
  options_.mask_token = "";
  for (const int block : {0, 40}) {
    options_.block = block;
    options_.overwrite = true;
    ASSERT_EQ(Run(), absl::OkStatus());
    const Corpus corpus = OpenCorpus("train");
    const Vocabulary vocabulary = LoadVocabularies(corpus)->target;
    EXPECT_EQ(corpus.manifest().special_tokens, (std::vector<int32_t>{0, 1, 2, 3, corpus.manifest().mask_token}));
    for (int64_t i = 0; i < corpus.size(); ++i) {
      PackedBatch batch;
      AppendSentence(corpus.sample(i), i, batch);
      ASSERT_EQ(batch.continues.size(), batch.target.size());
      for (size_t row = 0; row < batch.target.size(); ++row) {
        const std::string& token = vocabulary.Token(batch.target[row]);
        EXPECT_EQ(batch.continues[row], token != "</s>" && !token.starts_with("▁")) << token;
      }
    }
  }
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
