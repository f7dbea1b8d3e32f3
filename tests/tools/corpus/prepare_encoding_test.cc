// Lines into ids by several threads: the same bytes, and bounded memory.
#include "tools/corpus/prepare_corpus.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/vocabulary.h"
#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

// More lines than are encoded together, and a last part.
TEST_F(PrepareTest, ThreadsChangeNoByte) {
  std::string english, german;
  for (int64_t i = 0; i < 2 * static_cast<int64_t>(LineEncoder::kMostLines) + 100; ++i) {
    english += absl::StrCat("The cat ", i, "\n");
    german += absl::StrCat("Die Katze ", i, i % 1000 == 0 ? std::string(3000, '7') : "", "\n");
  }
  Write("train.en", english);
  Write("train.de", german);
  options_.max_tokens = 100;  // some are skipped
  options_.threads = 1;
  ASSERT_TRUE(Run().ok()) << Run();
  const std::string shard = Read("out/train.00000.shard"), manifest = Read("out/train.json");
  EXPECT_EQ(OpenCorpus("train").size(), 2 * static_cast<int64_t>(LineEncoder::kMostLines) + 100 - 17);
  options_.threads = 3;
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Read("out/train.00000.shard"), shard);
  EXPECT_EQ(Read("out/train.json"), manifest);
  EXPECT_EQ(SourceText(OpenCorpus("train"), 0), "The cat 1");
}

// What waits to be encoded is bounded by lines and by bytes.
TEST_F(PrepareTest, FewLinesWaitToBeEncoded) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"a", "b"});
  LineEncoder lines(nullptr, vocabulary, 2);
  ParallelLine line{.number = 1, .target = "a b a"};
  for (size_t i = 0; i < LineEncoder::kMostLines; ++i) {
    EXPECT_FALSE(lines.full());
    lines.Add(0, line);
  }
  EXPECT_TRUE(lines.full());
  EXPECT_EQ(lines.Encode().size(), LineEncoder::kMostLines);
  EXPECT_FALSE(lines.full());
  line.target = std::string(LineEncoder::kMostBytes / 2, 'a');
  lines.Add(0, line);
  EXPECT_FALSE(lines.full());
  lines.Add(0, line);
  EXPECT_TRUE(lines.full());
}

}  // namespace
}  // namespace hadal
