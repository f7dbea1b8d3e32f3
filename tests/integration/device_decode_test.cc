// Beam search on a device beside the CPU's: the same translations, scores alike to fp32; the same bits for every number of stages, beside any
// neighbours, and as graphs; in bf16 log-probabilities within a band of an evaluation's.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/launch_device.h"
#include "layers/model_plan.h"
#include "tests/integration/decode_run.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;

DecodeSpec SmallSpec(ResidualMethod method) {
  DecodeSpec spec;
  spec.model = SmallModel(method, 32, kVocabulary);
  spec.model.encoder_layers = spec.model.decoder_layers = 1;
  ApplyResidualMethod(method, spec.model);
  spec.model.sharing = EmbeddingSharing::kNone;  // a random model does not just repeat its input
  spec.decoder = {.beam = {.beam = 3, .max_length_b = 4}, .longest_source = 10, .sentences = 6};
  return spec;
}

DecodeSpec OnDevice(DecodeSpec spec) {
  spec.make_device = [](int rank) { return MakeTestDevice(3 + rank); };
  return spec;
}

// Of the products that are not a graph's: their sizes, by which a GPU's library chooses how it adds.
using Products = std::set<std::tuple<int64_t, int64_t, int64_t>>;
Products ProductsOf(DecodeSpec spec, const std::vector<std::vector<int32_t>>& sources, DecodeOutcome& outcome) {
  std::vector<cuda::MatmulArgs> products;
  spec.make_device = [&products](int) {
    std::unique_ptr<Device> device = MakeTestDevice(3);
    static_cast<cuda::LaunchDevice&>(*device).NoteProducts(&products);
    return device;
  };
  outcome = Decode(spec, sources);
  Products sizes;
  for (const cuda::MatmulArgs& product : products) sizes.emplace(product.m, product.n, product.k);
  return sizes;
}

TEST(DeviceDecodeTest, TranslationsAreThoseOfTheCpu) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(6, 9, kVocabulary, 5);
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kB2t, ResidualMethod::kNormFormer,
        ResidualMethod::kSubLn, ResidualMethod::kReZero, ResidualMethod::kRFixup, ResidualMethod::kDlclPre}) {
    DecodeSpec spec = SmallSpec(method);
    const DecodeOutcome cpu = Decode(spec, sources);
    spec = OnDevice(spec);
    const DecodeOutcome device = Decode(spec, sources);
    ASSERT_EQ(device.translations.size(), cpu.translations.size());
    for (size_t s = 0; s < sources.size(); ++s) {
      const Translation &ours = device.translations[s], &theirs = cpu.translations[s];
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t h = 0; h < ours.size(); ++h) {
        EXPECT_EQ(ours[h].tokens, theirs[h].tokens) << ResidualMethodName(method) << ", sentence " << s;
        EXPECT_NEAR(ours[h].score, theirs[h].score, 2e-5);
      }
    }
    if (method != ResidualMethod::kDlclPre && method != ResidualMethod::kB2t) continue;
    spec.ranks = 2;
    EXPECT_EQ(FirstDifference(device.translations, Decode(spec, sources).translations), "")
        << ResidualMethodName(method) << ", 2 stages";
  }
}

// A product of another size may be added in another order by a GPU's library, though not by what stands in for it here: so sizes are compared as well.
TEST(DeviceDecodeTest, NeighboursChangeNoBit) {
  const DecodeSpec spec = SmallSpec(ResidualMethod::kPreLn);
  std::vector<std::vector<int32_t>> sources = RandomSources(6, 9, kVocabulary, 6);
  DecodeOutcome together;
  const Products products = ProductsOf(spec, sources, together);
  EXPECT_FALSE(products.empty());
  for (const auto& [m, n, k] : products) {
    EXPECT_TRUE(m == together.capacity.rows || m == together.capacity.source_rows) << m << " rows";
  }
  std::reverse(sources.begin(), sources.end());
  sources.resize(3);
  DecodeOutcome apart;
  EXPECT_EQ(ProductsOf(spec, sources, apart), products);
  std::reverse(together.translations.begin(), together.translations.end());
  together.translations.resize(3);
  EXPECT_EQ(FirstDifference(together.translations, apart.translations), "");
  EXPECT_EQ(ProductsOf(spec, {sources[0]}, apart), products);
  EXPECT_EQ(FirstDifference({together.translations[0]}, apart.translations), "") << "alone";
}

// Three groups of a sentence, twice: encodings and steps are launched one by one, then recorded, then graphs. BranchNorm's gains change between.
TEST(DeviceDecodeTest, GraphsChangeNoBitAndAreALaunchAStep) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(3, 9, kVocabulary, 7);
  DecodeSpec spec = OnDevice(SmallSpec(ResidualMethod::kBranchNorm));
  spec.decoder.sentences = 1;
  spec.decoder.beam = {.beam = 2, .max_length_b = 2};
  spec.times = 2;
  const DecodeOutcome graphs = Decode(spec, sources);
  spec.decoder.graphs = false;
  spec.times = 1;
  const DecodeOutcome of_before = Decode(spec, sources);
  ++spec.update;
  const DecodeOutcome apart = Decode(spec, sources);
  EXPECT_EQ(FirstDifference(graphs.translations, apart.translations), "");
  EXPECT_NE(FirstDifference(of_before.translations, apart.translations), "") << "the gains do not matter";
  // At most three steps of a group, and its encoding; and the cache's row 0 is cleared.
  EXPECT_LE(graphs.launches[0], 3 * 4 + 1);
  EXPECT_GT(apart.launches[0], 10 * graphs.launches[0]);
  // The stage in the middle has the target embedding alone: the encoder's memory only passes through.
  spec.decoder.graphs = true;
  spec.ranks = 3;
  const int32_t embedding = ModelPlan::Make(spec.model).target_embedding();
  spec.pipeline.split = {embedding, embedding + 1};
  EXPECT_EQ(FirstDifference(apart.translations, Decode(spec, sources).translations), "") << "3 stages";
  std::cout << graphs.launches[0] << " launches as graphs, " << apart.launches[0] << " one by one\n";
}

// Of post-norm, pre-norm and no-norm streams, skips, inner norms, learned scalars and combinations of layers.
TEST(DeviceDecodeTest, Bf16FollowsAnEvaluationInBf16) {
  constexpr double kBand = 0.03;  // of a log-probability near 4
  const std::vector<std::vector<int32_t>> sources = RandomSources(3, 9, kVocabulary, 8);
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kB2t, ResidualMethod::kNormFormer, ResidualMethod::kReZero,
        ResidualMethod::kRFixup, ResidualMethod::kDlclPre, ResidualMethod::kDlclPost}) {
    DecodeSpec spec = OnDevice(SmallSpec(method));
    spec.compute_storage = Storage::kBFloat16;
    spec.decoder.beam.max_length_b = 2;
    spec.decoder.sentences = 3;
    const DecodeOutcome outcome = Decode(spec, sources, /*evaluate=*/true);
    ASSERT_EQ(outcome.evaluated.size(), sources.size());
    double most = 0;
    for (size_t s = 0; s < sources.size(); ++s) {
      const std::vector<float>& found = outcome.translations[s].front().token_log_probabilities;
      ASSERT_EQ(found.size(), outcome.evaluated[s].size());
      for (size_t t = 0; t < found.size(); ++t)
        most = std::max<double>(most, std::abs(found[t] + outcome.evaluated[s][t]));
    }
    EXPECT_LT(most, kBand) << ResidualMethodName(method);
    RecordProperty(std::string(ResidualMethodName(method)), std::to_string(most));
    if (method != ResidualMethod::kDlclPre && method != ResidualMethod::kDeepNorm) continue;
    spec.ranks = 2;
    EXPECT_EQ(FirstDifference(outcome.translations, Decode(spec, sources).translations), "")
        << ResidualMethodName(method) << ", 2 stages";
  }
}

}  // namespace
}  // namespace hadal::testing
