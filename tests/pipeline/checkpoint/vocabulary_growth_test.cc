// Rows that go by token; whole runs: tests/launch/train_command_test.sh.
#include "pipeline/checkpoint/vocabulary_growth.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "layers/initialization.h"
#include "layers/parameter_store.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary_training.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kWidth = 8;

Vocabulary Words(const std::vector<std::string>& words) { return *Vocabulary::FromTokens(words); }

TEST(IdsOfTokensTest, FollowTheTokens) {
  EXPECT_THAT(*IdsOfTokens(Words({"a", "b"}), Words({"a", "b"})), IsEmpty());
  EXPECT_THAT(*IdsOfTokens(Words({"a", "b"}), Words({"b", "x", "a"})), ElementsAre(0, 1, 2, 3, 6, 4));
  EXPECT_THAT(*IdsOfTokens(Words({"a", "b"}), Words({"a", "b", "c"})), ElementsAre(0, 1, 2, 3, 4, 5));
  const std::vector<std::string> many = {"a", "b", "c", "d", "e", "f", "g"};
  EXPECT_THAT(std::string(IdsOfTokens(Words(many), Words({"g", "h"})).status().message()),
              HasSubstr("lacks 6 of the 11 tokens of the checkpoint's: \"a\", \"b\", \"c\", \"d\", \"e\", …"));
}

TEST(IdsOfTokensTest, AReservedTagBecomesALanguages) {
  const Vocabulary plain = *TrainVocabulary({.size = 30}, {"the old cat sat", "a dog", "the mat"});
  const Vocabulary reserved = *AddLanguageTags(plain, {"de"}, 2);
  EXPECT_THAT(*IdsOfTokens(reserved, *AddLanguageTags(reserved, {"fr"})), IsEmpty());
  EXPECT_FALSE(IdsOfTokens(*AddLanguageTags(reserved, {"fr"}), *AddLanguageTags(reserved, {"nl"})).ok());
}

ModelPlan Plan(int32_t ids, EmbeddingSharing sharing) {
  ModelOptions model = TinyModel({.d_model = kWidth, .vocabulary = ids});
  model.sharing = sharing;
  return ModelPlan::Make(model);
}

TEST(VocabularyGrowthTest, EachSidesTableHasItsOwnRows) {
  const ModelPlan plan = Plan(8, EmbeddingSharing::kNone);
  const TokenRows rows{.source = {0, 1, 2, 3, 5}, .target = {0, 1, 2, 3, 6}};
  const auto of = [&](int32_t sublayer) {
    const std::span<const int32_t> ids = rows.Of(plan, plan.sublayers[sublayer].first_parameter);
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  EXPECT_THAT(of(plan.source_embedding()), ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(of(plan.target_embedding()), ElementsAre(0, 1, 2, 3, 6));
}

// Of so many words, more than one slice of a table; the model has a new word in front of them and one behind.
TEST(VocabularyGrowthTest, RowsGoByTokenAndNewOnesAreDrawnOrTheMean) {
  constexpr int32_t kWords = 132'000, kOld = kSpecialTokens + kWords, kNew = kOld + 2;
  std::vector<std::string> words;
  for (int i = 0; i < kWords; ++i) words.push_back(absl::StrCat("w", i));
  const Vocabulary before = Words(words);
  words.insert(words.begin(), "x");
  words.push_back("y");
  const std::vector<Attachment> now = {{"vocabulary.txt", Words(words).contents()}};
  for (const EmbeddingSharing sharing : {EmbeddingSharing::kAll, EmbeddingSharing::kNone}) {
    const TemporaryDirectory run;
    const ModelPlan old_plan = Plan(kOld, sharing), plan = Plan(kNew, sharing);
    SmallState state(DescribeParameters(old_plan), 1);
    CheckpointCommitter committer = SmallCommitter(run.path(), {}, state.parameters());
    ASSERT_TRUE(Save(committer, state, {.vocabulary = before.contents()}).ok());
    CheckpointReader checkpoint = OpenLatest(run.path()).value();
    const TokenRows rows = FindTokenRows(checkpoint, now).value();
    EXPECT_TRUE(FindTokenRows(checkpoint, {{{"vocabulary.txt", before.contents()}}})->empty());
    ASSERT_TRUE(CompareBesideRows(checkpoint.manifest().parameters, plan, &rows).ok());
    EXPECT_FALSE(CompareBesideRows(checkpoint.manifest().parameters, Plan(kNew, EmbeddingSharing::kDecoder)).ok());
    const NewRows new_rows = sharing == EmbeddingSharing::kAll ? NewRows::kMean : NewRows::kDraw;
    SmallState loaded(DescribeParameters(plan), 2), drawn = loaded;
    ASSERT_TRUE(
        ReadRowsByToken(checkpoint, plan, rows, new_rows, /*seed=*/7, loaded.Slices(), /*device=*/nullptr).ok());
    for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
      const std::vector<float>& values = loaded.values(p, StateKind::kWeight);
      std::vector<float>& fresh = drawn.values(p, StateKind::kWeight);
      if (plan.parameters[p].role != ParameterRole::kEmbedding) {
        EXPECT_EQ(values, fresh) << plan.ParameterName(p) << " is no table";
        continue;
      }
      const std::vector<float>& old = state.values(p, StateKind::kWeight);
      const auto same_row = [&](int64_t row, int64_t from) {
        return std::equal(&values[row * kWidth], &values[row * kWidth] + kWidth, &old[from * kWidth]);
      };
      for (int64_t id = 0; id < kOld; ++id) ASSERT_TRUE(same_row(id < kSpecialTokens ? id : id + 1, id)) << id;
      std::vector<double> sum(kWidth);
      for (size_t i = kSpecialTokens * kWidth; i < old.size(); ++i) sum[i % kWidth] += old[i];
      for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
        const Vector all(fresh.data(), static_cast<int64_t>(fresh.size()));
        InitializeSlice(Stream::Cpu(1), plan, /*seed=*/7, p, slice, SliceOf(all, slice));
      }
      for (const int64_t row : {int64_t{kSpecialTokens}, int64_t{kNew} - 1}) {
        for (int64_t c = 0; c < kWidth; ++c) {
          const float mean = static_cast<float>(sum[c] / kWords);
          EXPECT_EQ(values[row * kWidth + c], new_rows == NewRows::kMean ? mean : fresh[row * kWidth + c]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hadal
