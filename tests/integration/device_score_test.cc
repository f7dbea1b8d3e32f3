// Scores of given pairs on a device: the CPU's to fp32, and the same bits beside any neighbours.
#include <set>

#include "gtest/gtest.h"
#include "kernels/cuda_host/launch_device.h"
#include "pipeline/pair_scorer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/saved_model.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kVocabulary = 61;
constexpr int kBatchTokens = 300;

SavedModel SmallSavedModel() {
  ModelOptions model = SmallModel(ResidualMethod::kPreLn,
                                  {.encoder_layers = 1, .decoder_layers = 1, .d_model = 16, .vocabulary = kVocabulary});
  std::vector<std::string> tokens;
  for (int32_t id = kSpecialTokens; id < kVocabulary; ++id) tokens.push_back(absl::StrCat("w", id));
  return {.model = model, .vocabularies = {VocabularyFile("vocabulary", *Vocabulary::FromTokens(tokens))}};
}

// Sizes of products, by which a GPU's library chooses how it adds.
using Products = std::set<std::tuple<int64_t, int64_t, int64_t>>;

class DeviceScoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status status = SaveModel(SmallSavedModel(), directory_ / "run");
    ASSERT_TRUE(status.ok()) << status;
  }

  // `device`: null for the CPU.
  std::vector<PairScore> Score(Device* device, const std::vector<SampleView>& pairs, int batch_tokens = kBatchTokens) {
    std::vector<PairScore> scores;
    InProcessWorld world(1);
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      PrepareComputeThread();
      HADAL_ASSIGN_OR_RETURN(ModelCheckpoint checkpoint, ModelCheckpoint::Open(directory_ / "run"));
      const Stream stream = device == nullptr ? Stream::Cpu(1) : Stream::On(*device, 1);
      HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<PairScorer> scorer,
                             PairScorer::Create(checkpoint, batch_tokens, stream, communicator, kTimeout));
      EXPECT_EQ(scorer->longest_tokens(), 63);  // max_positions − </s>
      HADAL_ASSIGN_OR_RETURN(scores, scorer->Score(pairs));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return scores;
  }

  std::vector<PairScore> ScoreOnDevice(const std::vector<SampleView>& pairs, Products& products,
                                       int batch_tokens = kBatchTokens) {
    const std::unique_ptr<Device> device = MakeTestDevice(3);
    std::vector<cuda::MatmulArgs> args;
    static_cast<cuda::LaunchDevice&>(*device).NoteProducts(&args);
    std::vector<PairScore> scores = Score(device.get(), pairs, batch_tokens);
    products.clear();
    for (const cuda::MatmulArgs& product : args) products.emplace(product.m, product.n, product.k);
    return scores;
  }

  TemporaryDirectory directory_;
};

std::vector<SampleView> PairsOf(const Corpus& corpus, int64_t first, int64_t count) {
  std::vector<SampleView> pairs;
  for (int64_t i = first; i < first + count; ++i) pairs.push_back(corpus.sample(i));
  return pairs;
}

TEST_F(DeviceScoreTest, ScoresAreThoseOfTheCpu) {
  const Corpus corpus = RandomCorpus(8, 9, kVocabulary, 5);
  const std::vector<SampleView> pairs = PairsOf(corpus, 0, 8);
  Products products;
  const std::vector<PairScore> device = ScoreOnDevice(pairs, products), cpu = Score(nullptr, pairs);
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t p = 0; p < cpu.size(); ++p) {
    EXPECT_EQ(device[p].tokens, cpu[p].tokens);
    EXPECT_NEAR(device[p].log_probability, cpu[p].log_probability, 2e-5 * static_cast<double>(cpu[p].tokens));
  }
}

// More rows than the head makes logits of at a time, and no whole number of those: the size is rounded up.
TEST_F(DeviceScoreTest, BlocksOfLogitsHaveOneSize) {
  const auto block =
      static_cast<int>(Workspace::LogitRows(DeviceKind::kCuda, ModelPlan::Make(SmallSavedModel().model)));
  const Corpus corpus = RandomCorpus(1, 9, kVocabulary, 5);
  const std::vector<SampleView> pairs = PairsOf(corpus, 0, 1);
  Products products;
  const std::vector<PairScore> device = ScoreOnDevice(pairs, products, block + 100), cpu = Score(nullptr, pairs);
  for (const auto& [m, n, k] : products) {
    if (n == kVocabulary) {
      EXPECT_EQ(m, block);
    }
  }
  EXPECT_NEAR(device[0].log_probability, cpu[0].log_probability, 2e-5 * static_cast<double>(cpu[0].tokens));
}

// A product of another size may be added in another order by a GPU's library, though not by what stands in for it here:
// so sizes are compared as well.
TEST_F(DeviceScoreTest, NeighboursChangeNoBit) {
  constexpr int kPairs = 70;  // more than a batch
  const Corpus corpus = RandomCorpus(kPairs, 9, kVocabulary, 6);
  const std::vector<SampleView> pairs = PairsOf(corpus, 0, kPairs);
  Products products, others;
  const std::vector<PairScore> together = ScoreOnDevice(pairs, products);
  int64_t tokens = 0;
  for (const PairScore& score : together) tokens += score.tokens;
  ASSERT_GT(tokens, kBatchTokens);
  for (const auto& [m, n, k] : products) EXPECT_EQ(m, kBatchTokens);
  const std::vector<SampleView> backwards(pairs.rbegin(), pairs.rend());
  const std::vector<PairScore> turned = ScoreOnDevice(backwards, others);
  EXPECT_EQ(products, others);
  for (int p = 0; p < kPairs; ++p) {
    EXPECT_EQ(turned[kPairs - 1 - p].log_probability, together[p].log_probability) << "pair " << p;
  }
  for (const int p : {0, kPairs - 1}) {
    const std::vector<PairScore> alone = ScoreOnDevice({pairs[p]}, others);
    EXPECT_EQ(products, others);
    EXPECT_EQ(alone[0].log_probability, together[p].log_probability) << "pair " << p << " alone";
  }
}

}  // namespace
}  // namespace hadal::testing
