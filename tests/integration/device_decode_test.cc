// Beam search on a device beside the CPU's: the same translations, scores alike to fp32; the same bits for every number
// of stages, beside any neighbours, and as graphs; in bf16 log-probabilities within a band of an evaluation's.
#include <cmath>
#include <iostream>
#include <set>

#include "gtest/gtest.h"
#include "kernels/cuda_host/launch_device.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "runtime/random.h"
#include "tests/integration/decode_run.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;

DecodeSpec SmallSpec(ResidualMethod method) {
  DecodeSpec spec;
  spec.model = SmallModel(
      method, {.encoder_layers = 1, .decoder_layers = 1, .d_model = 32, .heads = 2, .vocabulary = kVocabulary});
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
        ResidualMethod::kSubLn, ResidualMethod::kReZero, ResidualMethod::kRFixup, ResidualMethod::kDlclPre,
        ResidualMethod::kKeel, ResidualMethod::kPeriLn, ResidualMethod::kLnScaling, ResidualMethod::kMixLn,
        ResidualMethod::kResidualDual, ResidualMethod::kMhc}) {
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

// A product of another size may be added in another order by a GPU's library, though not by what stands in for it here:
// so sizes are compared as well.
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

// A stage that begins with cross-attention: nothing has written the caches' row 0 when rows that only fill a step up
// read it.
TEST(DeviceDecodeTest, RowsThatOnlyFillUpComputeNoNanOfWhatLayInTheCaches) {
  const ModelOptions model = SmallSpec(ResidualMethod::kDeepNorm).model;
  const ModelPlan plan = ModelPlan::Make(model);
  const DecodeCapacity capacity{.lanes = 2,
                                .sentences = 1,
                                .rows = kFewestDecodeRows,
                                .source_rows = kFewestDecodeRows,
                                .longest_source = kFewestDecodeRows,
                                .longest_path = 4,
                                .cache_rows = 32};
  const std::unique_ptr<Device> device = MakeTestDevice(3);
  const Stream stream = Stream::On(*device, 1);
  ArenaLayout layout;
  const ArenaSlice base = layout.ReserveLasting<float>("base", 16);
  const int32_t first = plan.target_embedding() + 2;
  std::vector<int32_t> sublayers;
  for (int32_t s = first; s < static_cast<int32_t>(plan.sublayers.size()); ++s) sublayers.push_back(s);
  ParameterStore parameters(plan, sublayers, Purpose::kInference, layout);
  DecodeBuffers buffers(plan, capacity, stream, layout);
  DecoderChunk chunk(plan, first, static_cast<int32_t>(plan.sublayers.size()), /*known_input=*/0, /*known_output=*/0,
                     capacity, /*candidates=*/2, buffers, {.on_device = true}, layout);
  buffers.ReserveRequired(layout);
  const Arena arena = *Arena::Allocate(layout, device.get());
  parameters.Bind(arena);
  buffers.Bind(arena);
  chunk.Bind(arena);
  const std::vector<float> nan(layout.device_bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  device->CopyIn(arena.Get<float>(base), nan.data(), layout.device_bytes());
  const auto fill = [&](void* to, int64_t floats) {
    std::vector<float> values(floats);
    for (int64_t i = 0; i < floats; ++i)
      values[i] = 0.1f * static_cast<float>(NormalAt(5, RandomSite::kSampling, 0, i));
    stream.FromHost(to, values.data(), floats * int64_t{sizeof(float)});
  };
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    if (parameters.Holds(p)) fill(parameters.Weight(p).data, plan.parameters[p].elements());
  }

  chunk.Begin(stream, /*update=*/1);
  for (int32_t l = 0; l < capacity.lanes; ++l) {
    DecodeLane lane(capacity, /*on_device=*/true);
    lane.BeginGroup({.kind = DecodeCommand::Kind::kEncode,
                     .lane = l,
                     .source_offsets = {0, kFewestDecodeRows},
                     .source = std::vector<int32_t>(kFewestDecodeRows, kEosToken)},
                    {}, 0);
    fill(chunk.EncodeInput(capacity.source_rows).data, capacity.source_rows * model.d_model);
    chunk.Encode({.stream = stream,
                  .parameters = parameters,
                  .workspace = buffers.workspace(),
                  .batch = lane.batch(),
                  .scalars = {.update = 1, .training = false}},
                 lane.encoder_output(), l);
    lane.BeginStep({.kind = DecodeCommand::Kind::kStep, .lane = l, .rows = {{.token = kEosToken, .cache_row = 20}}});
    fill(chunk.StepInput(capacity.rows).data, capacity.rows * model.d_model);
    const ConstAnyMatrix out = chunk.Step({.stream = stream,
                                           .parameters = parameters,
                                           .scratch = buffers.scratch(),
                                           .rows = lane.rows(),
                                           .rotary = buffers.workspace().rotary()},
                                          l);
    std::vector<float> values(out.rows * out.columns);
    stream.ToHost(values.data(), out.data, out.bytes());
    for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << "lane " << l;
  }
}

// The logits of all tokens come from the device, behind steps that are graphs too; a language model has no encoder
// there.
TEST(DeviceDecodeTest, SamplesAreThoseOfTheCpu) {
  for (const int encoder_layers : {0, 1}) {
    DecodeSpec spec = SmallSpec(ResidualMethod::kDeepNorm);
    spec.model = SmallModel(
        ResidualMethod::kDeepNorm,
        {.encoder_layers = encoder_layers, .decoder_layers = 2, .d_model = 32, .heads = 2, .vocabulary = kVocabulary});
    spec.decoder.beam = {
        .beam = 2, .length_penalty = 0, .max_length_b = 5, .sampling = DrawOptions{.top_k = 40, .top_p = 0.9}};
    spec.decoder.prefixes = true;
    std::vector<std::vector<int32_t>> sources(5);
    if (encoder_layers > 0) sources = RandomSources(5, 9, kVocabulary, 5);
    for (uint32_t s = 0; s < sources.size(); ++s) spec.starts.push_back({{7, static_cast<int32_t>(20 + s)}, s});
    const DecodeOutcome cpu = Decode(spec, sources);
    spec = OnDevice(spec);
    const DecodeOutcome device = Decode(spec, sources);
    for (size_t s = 0; s < sources.size(); ++s) {
      ASSERT_EQ(device.translations[s].size(), 2u);
      for (size_t h = 0; h < 2; ++h) {
        EXPECT_EQ(device.translations[s][h].tokens, cpu.translations[s][h].tokens) << "sentence " << s;
        EXPECT_NEAR(device.translations[s][h].score, cpu.translations[s][h].score, 1e-4);
      }
    }
    spec.ranks = 2;
    EXPECT_EQ(FirstDifference(device.translations, Decode(spec, sources).translations), "") << "2 stages";
    spec.ranks = 1;
    spec.decoder.graphs = false;
    EXPECT_EQ(FirstDifference(device.translations, Decode(spec, sources).translations), "") << "no graphs";
    if (encoder_layers == 0) continue;
    spec.compute_storage = Storage::kBFloat16;
    const DecodeOutcome bf16 = Decode(spec, sources, /*evaluate=*/true);
    for (size_t s = 0; s < sources.size(); ++s) {
      for (size_t t = 0; t < bf16.evaluated[s].size(); ++t) {
        EXPECT_NEAR(-bf16.translations[s][0].token_log_probabilities[t], bf16.evaluated[s][t], 0.03);
      }
    }
  }
}

// Three groups of a sentence, twice: encodings and steps are launched one by one, then recorded, then graphs. The
// gains of the branches grow between.
DecodeSpec GrowingTwice(ResidualMethod method) {
  DecodeSpec spec = OnDevice(SmallSpec(method));
  spec.model.branch_growth = BranchGrowth::kLinear;
  spec.decoder.sentences = 1;
  spec.decoder.beam = {.beam = 2, .max_length_b = 2};
  spec.times = 2;
  return spec;
}

TEST(DeviceDecodeTest, GraphsChangeNoBitAndAreALaunchAStep) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(3, 9, kVocabulary, 7);
  DecodeSpec spec = GrowingTwice(ResidualMethod::kBranchNorm);
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
  // The stage in the middle has the target embedding alone: the encoder's output only passes through.
  spec.decoder.graphs = true;
  spec.ranks = 3;
  const int32_t embedding = ModelPlan::Make(spec.model).target_embedding();
  spec.pipeline.split = {embedding, embedding + 1};
  EXPECT_EQ(FirstDifference(apart.translations, Decode(spec, sources).translations), "") << "3 stages";
  std::cout << graphs.launches[0] << " launches as graphs, " << apart.launches[0] << " one by one\n";
}

// A recorded step reads the gain of its own update, with several residual streams, too.
TEST(DeviceDecodeTest, GraphsOfSeveralStreamsFollowTheGains) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(3, 9, kVocabulary, 7);
  DecodeSpec spec = GrowingTwice(ResidualMethod::kMhc);
  const DecodeOutcome graphs = Decode(spec, sources);
  spec.decoder.graphs = false;
  spec.times = 1;
  ++spec.update;
  EXPECT_EQ(FirstDifference(graphs.translations, Decode(spec, sources).translations), "");
}

// Of post-norm, pre-norm and no-norm streams, skips, inner norms, learned scalars and combinations of layers.
TEST(DeviceDecodeTest, Bf16FollowsAnEvaluationInBf16) {
  constexpr double kBand = 0.03;  // of a log-probability near 4
  const std::vector<std::vector<int32_t>> sources = RandomSources(3, 9, kVocabulary, 8);
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kB2t, ResidualMethod::kNormFormer, ResidualMethod::kReZero,
        ResidualMethod::kRFixup, ResidualMethod::kDlclPre, ResidualMethod::kDlclPost, ResidualMethod::kPeriLn,
        ResidualMethod::kLnScaling, ResidualMethod::kResidualDual, ResidualMethod::kMhc}) {
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
