#include "layers/initialization.h"

#include <cmath>

#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr uint64_t kSeed = 17;

std::vector<float> WholeParameter(const ModelPlan& plan, int32_t parameter, int threads = 1) {
  const int64_t elements = plan.parameters[parameter].elements();
  std::vector<float> values(elements);
  for (int64_t first = 0; first < elements; first += kSliceElements) {
    InitializeSlice(Stream::Cpu(threads), plan, kSeed, parameter, first / kSliceElements,
                    {values.data() + first, std::min(kSliceElements, elements - first)});
  }
  return values;
}

// What the specification says of one matrix, restated here: Xavier's standard deviation with the gains of the method
// and the layer.
double ExpectedDeviation(const ModelPlan& plan, const ParameterRecord& record) {
  const SublayerRecord& owner = plan.sublayers[record.sublayer];
  const StackMethod& method = owner.stack == Stack::kEncoder ? plan.options.encoder : plan.options.decoder;
  const int32_t layers = owner.stack == Stack::kEncoder ? plan.options.encoder_layers : plan.options.decoder_layers;
  double xavier = std::sqrt(2.0 / static_cast<double>(record.rows + record.columns));
  if (method.depth_init == DepthInit::kInverseSqrt) xavier /= std::sqrt(owner.layer + 1);
  if (method.depth_init == DepthInit::kFromTop) xavier /= layers - owner.layer;
  const bool cross = owner.kind == SublayerKind::kCrossAttention;
  switch (record.role) {
    case ParameterRole::kEmbedding:
      return (owner.kind == SublayerKind::kOutputHead ? method.projection_gain : method.embedding_gain) /
             std::sqrt(static_cast<double>(plan.options.d_model));
    case ParameterRole::kQueryWeight:
    case ParameterRole::kKeyWeight:
      return method.query_key_gain * xavier;
    case ParameterRole::kValueWeight:
      return (cross ? method.cross_value_gain : method.value_gain) * xavier;
    case ParameterRole::kOutputWeight:
      return (cross ? method.cross_output_gain : method.output_gain) * xavier;
    case ParameterRole::kHiddenWeight:
      return method.ffn_gain * xavier;
    case ParameterRole::kContractionWeight:
      return method.ffn_gain * method.ffn_output_factor * xavier;
    case ParameterRole::kHyperMapWeight:
      return xavier;
    default:
      return 0;
  }
}

bool StartsFromOne(ParameterRole role) {
  return role == ParameterRole::kNormScale || role == ParameterRole::kClosingNormScale ||
         role == ParameterRole::kInnerNormScale || role == ParameterRole::kOutputNormScale ||
         role == ParameterRole::kHiddenNormScale || role == ParameterRole::kHeadScale ||
         role == ParameterRole::kBranchScale || role == ParameterRole::kClosingScale ||
         role == ParameterRole::kCombinationNormScale || role == ParameterRole::kInputNormScale ||
         role == ParameterRole::kReaderScale || role == ParameterRole::kClosingReaderScale;
}

// Closed-form Admin's vectors, the rows of DLCL's weights and the gates of streams' maps start elsewhere.
double StartOf(const ModelPlan& plan, const ParameterRecord& record) {
  if (record.role == ParameterRole::kCombinationWeight) return 1.0f / static_cast<float>(record.elements());
  if (record.role == ParameterRole::kHyperMapGates) return 0.01f;
  if (record.role != ParameterRole::kOmega) return StartsFromOne(record.role) ? 1 : 0;
  const bool encoder = plan.sublayers[record.sublayer].stack == Stack::kEncoder;
  return static_cast<float>((encoder ? plan.options.encoder : plan.options.decoder).initial_omega);
}

class InitializationTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(InitializationTest, EveryParameterHasItsDistribution) {
  ModelOptions options =
      TinyModel({.encoder_layers = 3, .decoder_layers = 4, .d_model = 64, .d_ff = 192, .heads = 4, .vocabulary = 300});
  options.sharing = EmbeddingSharing::kNone;
  ApplyResidualMethod(GetParam(), options);
  const ModelPlan plan = ModelPlan::Make(options);
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    const ParameterRecord& record = plan.parameters[p];
    const std::vector<float> values = WholeParameter(plan, p);
    double sum = 0, squares = 0, largest = 0;
    for (const float x : values) {
      sum += x;
      squares += double{x} * x;
      largest = std::max(largest, std::abs(double{x}));
    }
    const double n = static_cast<double>(values.size());
    const double deviation = std::sqrt(squares / n);
    if (record.is_vector()) {
      const double start = StartOf(plan, record);
      for (const float value : values) ASSERT_EQ(value, start) << plan.ParameterName(p);
      continue;
    }
    const double expected = ExpectedDeviation(plan, record);
    if (expected == 0) {
      EXPECT_EQ(largest, 0) << plan.ParameterName(p);
      continue;
    }
    // A standard deviation estimated from n draws scatters by about 1/sqrt(2n).
    EXPECT_NEAR(deviation / expected, 1, 5 / std::sqrt(2 * n) + 2e-3) << plan.ParameterName(p);
    EXPECT_NEAR(sum / n, 0, 5 * expected / std::sqrt(n)) << plan.ParameterName(p);
    const bool uniform =
        record.role != ParameterRole::kEmbedding && options.distribution == WeightDistribution::kXavierUniform;
    if (uniform) {
      EXPECT_LE(largest, expected * std::sqrt(3.0) * 1.000001) << plan.ParameterName(p);
    } else {
      EXPECT_GT(largest, expected * 2.5) << plan.ParameterName(p);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, InitializationTest, ::testing::ValuesIn(AllResidualMethods()),
                         [](const auto& info) { return ResidualMethodName(info.param); });

ModelOptions TinyOptions() { return TinyModel({.d_ff = 16, .heads = 2}); }

TEST(InitializationTest, PaddingRowIsZeroAndParametersDiffer) {
  ModelOptions options = TinyOptions();
  const ModelPlan plan = ModelPlan::Make(options);
  options.sharing = EmbeddingSharing::kNone;  // the output projection has a table of its own
  const ModelPlan untied = ModelPlan::Make(options);
  for (const int32_t sublayer : {untied.source_embedding(), untied.target_embedding(), untied.output_head()}) {
    const std::vector<float> table = WholeParameter(untied, untied.sublayers[sublayer].table);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(table[kPadToken * 8 + i], 0.0f) << "sublayer " << sublayer;
    EXPECT_NE(table[0], 0.0f);
  }
  EXPECT_NE(WholeParameter(plan, 1), WholeParameter(plan, 2));  // q and k weights
  options.reserved_ids = false;                                 // a tokenizer's: no id is padding
  const ModelPlan tokenizer = ModelPlan::Make(options);
  EXPECT_NE(WholeParameter(tokenizer, tokenizer.sublayers[tokenizer.target_embedding()].table)[kPadToken * 8], 0.0f);
}

TEST(InitializationTest, ThreadsAndSlicesChangeNothing) {
  ModelOptions options =
      TinyModel({.d_model = 256, .d_ff = 16, .heads = 2, .vocabulary = 5000});  // the table has two slices
  const ModelPlan plan = ModelPlan::Make(options);
  EXPECT_EQ(SliceCount(plan.parameters[0]), 2);
  const std::vector<float> serial = WholeParameter(plan, 0, 1);
  EXPECT_EQ(serial, WholeParameter(plan, 0, 3));
  // An element's value is its place's in the whole parameter.
  for (const int64_t element : {int64_t{0}, kSliceElements - 1, kSliceElements, std::ssize(serial) - 1}) {
    const double normal = NormalAt(kSeed, RandomSite::kInitialization, /*stream=*/0, static_cast<uint64_t>(element));
    EXPECT_EQ(serial[element], static_cast<float>(plan.parameters[0].init_scale * normal)) << element;
  }
}

// The padding's row is a table's; a normal matrix has a row of that number too.
TEST(InitializationTest, OnlyTablesHaveAPaddingRow) {
  ModelOptions options = TinyOptions();
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options);
  const ModelPlan plan = ModelPlan::Make(options);
  ASSERT_EQ(plan.parameters[1].init, InitKind::kNormal);
  const std::vector<float> query = WholeParameter(plan, 1);
  for (int i = 0; i < 8; ++i) EXPECT_NE(query[kPadToken * 8 + i], 0.0f);
}

}  // namespace
}  // namespace hadal
