#include "tools/corpus/inspect.h"

#include <filesystem>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/sampling_order.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/prepare.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetContents(directory_ / "dict.txt", "a 1\nb 1\nc 1\n");
    SetContents(directory_ / "x.en", "a b\nb b c\nc\na a a a\n");
    SetContents(directory_ / "x.de", "b a\nc b b\nc\na a b a\n");
    PrepareOptions prepare;
    prepare.train = {{directory_ / "x.en", directory_ / "x.de"}};
    prepare.output = directory_ / "out";
    prepare.source_vocabulary = prepare.target_vocabulary = directory_ / "dict.txt";
    std::ostringstream out;
    ASSERT_TRUE(RunPrepare(prepare, out).ok());
    options_ = {
        .data = directory_ / "out/train", .seed = 4, .micro_batches = 2, .source_tokens = 7, .target_tokens = 7};
  }

  const TemporaryDirectory directory_;
  InspectBatchOptions options_;
  std::ostringstream out_;
};

TEST_F(InspectTest, PrintsWhatTheStepTrainsOn) {
  options_.step = 4;  // the fourth; data count from 0
  ASSERT_TRUE(RunInspectBatch(options_, out_).ok());
  const Corpus corpus = *Corpus::Open(options_.data);
  const StepBatches step = SamplingOrder::Create(corpus, {4, {7, 7}, 2})->At(3);
  for (const PackedBatch& batch : step.micro_batches) {
    EXPECT_THAT(out_.str(),
                HasSubstr(absl::StrCat("micro-batch ", batch.micro_batch, ": ", batch.sentences(), " sent")));
    for (const int64_t sample : batch.samples) {
      EXPECT_THAT(out_.str(),
                  HasSubstr(absl::StrCat("source ", absl::StrJoin(corpus.sample(sample).source, " "), " 2\n")));
      EXPECT_THAT(out_.str(),
                  HasSubstr(absl::StrCat("target ", absl::StrJoin(corpus.sample(sample).target, " "), " 2\n")));
    }
  }
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("step 4, seed 4: "), HasSubstr(absl::StrCat(step.target_tokens, " target rows; "))));
}

TEST_F(InspectTest, LeavesOutWhatIsLongerThanTheModelsPositions) {
  for (const int64_t longest : {5, 4}) {  // sample 3 has five tokens
    options_.max_positions = longest;
    std::ostringstream out;
    for (options_.step = 1; options_.step <= 4; ++options_.step) ASSERT_TRUE(RunInspectBatch(options_, out).ok());
    EXPECT_THAT(out.str(), HasSubstr("sample 2,"));
    EXPECT_EQ(out.str().find("sample 3,") != std::string::npos, longest == 5);
  }
}

TEST_F(InspectTest, IdsAloneNeedNoVocabulary) {
  std::filesystem::remove(directory_ / "out/vocabulary.txt");
  EXPECT_FALSE(RunInspectBatch(options_, out_).ok());
  options_.ids_only = true;
  ASSERT_TRUE(RunInspectBatch(options_, out_).ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("\"")));
}

TEST_F(InspectTest, BadUseIsSaid) {
  options_.step = 0;
  EXPECT_THAT(std::string(RunInspectBatch(options_, out_).message()), HasSubstr("steps count from 1"));
  options_.step = 1;
  options_.temperatures = {0.0};
  EXPECT_THAT(std::string(RunInspectBatch(options_, out_).message()), HasSubstr("a sampling temperature of 0"));
  options_.temperatures = {1.0};
  options_.source_tokens = 1;
  EXPECT_THAT(std::string(RunInspectBatch(options_, out_).message()), HasSubstr("none of the corpus's 4 samples"));
  options_.data = directory_ / "none";
  EXPECT_THAT(std::string(RunInspectBatch(options_, out_).message()), HasSubstr("none.json"));
}

}  // namespace
}  // namespace hadal
