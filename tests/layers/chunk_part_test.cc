#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "gtest/gtest.h"
#include "kernels/weighted_sum.h"
#include "layers/chunk_part.h"
#include "layers/method_presets.h"
#include "layers/parameter_store.h"
#include "layers/residual_profile.h"
#include "runtime/random.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

struct Wanted {
  Storage storage;
  int64_t rows, columns;
};

// Ragged shapes in both types, some of them empty.
std::vector<Wanted> RandomTensors(uint32_t stream) {
  const auto draw = [&](uint64_t index, int limit) {
    return static_cast<int>(UniformAt(3, RandomSite::kSampling, stream, index) * limit);
  };
  std::vector<Wanted> tensors;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(
        {draw(3 * i, 2) == 0 ? Storage::kFloat32 : Storage::kBFloat16, draw(3 * i + 1, 6), 1 + draw(3 * i + 2, 9)});
  }
  return tensors;
}

std::vector<AnyMatrix> Cut(const std::vector<Wanted>& tensors, std::byte* memory, int64_t& bytes) {
  SavedTensors saved(memory);
  std::vector<AnyMatrix> views;
  for (const Wanted& wanted : tensors) views.push_back(saved.Take(wanted.storage, wanted.rows, wanted.columns));
  bytes = saved.bytes();
  return views;
}

// Every tensor is filled with its own number; all must still be there in the end, within the bytes that were measured.
TEST(SavedTensors, AreAlignedWithinWhatWasMeasuredAndDoNotOverlap) {
  constexpr std::byte kUntouched{0xee};
  for (uint32_t stream = 0; stream < 50; ++stream) {
    const std::vector<Wanted> tensors = RandomTensors(stream);
    int64_t measured = 0, cut = 0, found = 0;
    for (const auto& view : Cut(tensors, nullptr, measured)) EXPECT_TRUE(view.empty());
    struct alignas(16) Block {
      std::byte bytes[16];
    };
    std::vector<Block> memory(measured / 16 + 1);
    auto* const base = reinterpret_cast<std::byte*>(memory.data());
    std::memset(base, static_cast<int>(kUntouched), memory.size() * 16);
    const auto views = Cut(tensors, base, cut);
    EXPECT_EQ(cut, measured);
    int64_t least = 0;
    for (size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(views[i].data) % 16, 0u);
      std::memset(views[i].data, static_cast<int>(i + 1), views[i].bytes());
      least += views[i].bytes();
    }
    EXPECT_LE(least, measured);
    EXPECT_LE(measured, least + std::ssize(tensors) * 15);
    // Cut again, as backward does.
    const auto again = Cut(tensors, base, found);
    for (size_t i = 0; i < again.size(); ++i) {
      const auto* const bytes = static_cast<const std::byte*>(again[i].data);
      for (int64_t b = 0; b < again[i].bytes(); ++b) ASSERT_EQ(bytes[b], std::byte(i + 1)) << i << ", byte " << b;
    }
    for (int64_t b = measured; b < std::ssize(memory) * 16; ++b) EXPECT_EQ(base[b], kUntouched);
  }
}

ModelPlan Plan() {
  ModelOptions model = TinyModel({.heads = 2});
  model.target_vocabulary = 30;
  model.sharing = EmbeddingSharing::kNone;
  return ModelPlan::Make(model);
}

class SublayerContextTest : public ::testing::Test {
 protected:
  SublayerContext Context(const PackedBatch& batch, const StepScalars& scalars) const {
    return {.stream = stream_, .parameters = parameters_, .workspace = workspace_, .batch = batch, .scalars = scalars};
  }

  const ModelPlan plan_ = Plan();
  const Stream stream_ = Stream::Cpu(1);
  ArenaLayout layout_;
  const ParameterStore parameters_{plan_, {0, 1, 2, 3, 4, 5, 6, 7}, Purpose::kInference, layout_};
  const Workspace workspace_{
      plan_, {.source_rows = 8, .target_rows = 8, .max_length = 8}, stream_, Purpose::kInference, layout_};
};

// No two masks of a run share a random number: neighbouring steps, micro-batches, sublayers and sites, and the largest
// of each.
TEST_F(SublayerContextTest, EverySiteSublayerMicroBatchAndStepHasCountersOfItsOwn) {
  std::set<PhiloxCounter> counters;
  size_t masks = 0;
  for (const int64_t step : {int64_t{0}, int64_t{1}, (int64_t{1} << 32) - 1}) {
    for (const int32_t micro_batch : {0, 1, 2, 2147483647}) {
      PackedBatch batch;
      batch.micro_batch = micro_batch;
      const SublayerContext context = Context(batch, {.seed = 5, .step = step});
      for (const int32_t sublayer : {0, 1, 2, 3, 8, 65535}) {
        for (const RandomSite site : {RandomSite::kResidual, RandomSite::kAttention, RandomSite::kActivation}) {
          const Dropout dropout = context.MakeDropout(0.1, sublayer, site);
          EXPECT_EQ(dropout.counter.seed, 5u);
          for (const uint32_t block : {0u, 1u}) {
            for (const uint32_t key_block : {0u, 1u}) counters.insert(dropout.counter.At(block, key_block));
          }
          ++masks;
        }
      }
    }
  }
  EXPECT_EQ(counters.size(), 4 * masks);
}

TEST_F(SublayerContextTest, DropoutIsOffOutsideTraining) {
  const PackedBatch batch;
  EXPECT_TRUE(Context(batch, {.training = true}).MakeDropout(0.1, 1, RandomSite::kResidual).active());
  EXPECT_FALSE(Context(batch, {.training = false}).MakeDropout(0.1, 1, RandomSite::kResidual).active());
  EXPECT_FALSE(Context(batch, {.training = true}).MakeDropout(0, 1, RandomSite::kResidual).active());
}

TEST_F(SublayerContextTest, PaddingRowsAreRowsButNoSentences) {
  PackedBatch batch;
  batch.source = {5, 2, kPaddingRow, kPaddingRow};
  batch.source_offsets = {0, 2};
  batch.target = {6, 7, 2, 8, 2, kPaddingRow};
  batch.target_offsets = {0, 3, 5};
  const SublayerContext context = Context(batch, {});
  EXPECT_EQ(context.rows(Stack::kEncoder), 4);
  EXPECT_EQ(context.sentence_rows(Stack::kEncoder), 2);
  EXPECT_EQ(context.rows(Stack::kDecoder), 6);
  EXPECT_EQ(context.sentence_rows(Stack::kDecoder), 5);
  EXPECT_EQ(context.offsets(Stack::kEncoder).size, 2);
  EXPECT_EQ(context.offsets(Stack::kDecoder)[2], 5);
}

TEST(Workspace, RowsOfLogitsBeginOn16BytesOnGpus) {
  EXPECT_EQ(Workspace::LogitStride(DeviceKind::kCpu, 61), 61);
  EXPECT_EQ(Workspace::LogitStride(DeviceKind::kCuda, 61), 64);
  EXPECT_EQ(Workspace::LogitStride(DeviceKind::kCuda, 64), 64);
  EXPECT_EQ(Workspace::LogitStride(DeviceKind::kCuda, 65), 72);
}

// Up to 32,768 tokens the rows are those of every earlier run, so that its bits are, too.
TEST(Workspace, BlocksOfLogitsOfLargeVocabulariesTakeAtMost64MiB) {
  ModelPlan plan = Plan();
  const auto rows = [&plan](DeviceKind kind, Storage storage, int32_t vocabulary) {
    plan.options.target_vocabulary = vocabulary;
    plan.compute_storage = storage;
    return Workspace::LogitRows(kind, plan);
  };
  for (const int32_t vocabulary : {8, 8000, 32768}) {
    EXPECT_EQ(rows(DeviceKind::kCpu, Storage::kFloat32, vocabulary), 256);
    EXPECT_EQ(rows(DeviceKind::kCuda, Storage::kBFloat16, vocabulary), 2048);
    EXPECT_EQ(rows(DeviceKind::kCuda, Storage::kFloat32, vocabulary), 2048);
  }
  EXPECT_EQ(rows(DeviceKind::kCpu, Storage::kFloat32, 64000), 256);
  EXPECT_EQ(rows(DeviceKind::kCpu, Storage::kFloat32, 250000), 64);
  EXPECT_EQ(rows(DeviceKind::kCuda, Storage::kBFloat16, 250000), 128);
  EXPECT_EQ(rows(DeviceKind::kCpu, Storage::kFloat32, 1 << 20), 64) << "products of fewer rows are slow";
  for (int32_t vocabulary = 32769; vocabulary <= 262144; vocabulary += 8191) {
    for (const auto& [kind, storage] : {std::pair(DeviceKind::kCpu, Storage::kFloat32),
                                        {DeviceKind::kCuda, Storage::kFloat32},
                                        {DeviceKind::kCuda, Storage::kBFloat16}}) {
      const int64_t row_bytes = Workspace::LogitStride(kind, vocabulary) * BytesOf(storage);
      EXPECT_LE(rows(kind, storage, vocabulary) * row_bytes, int64_t{64} << 20) << vocabulary;
      EXPECT_LE(Workspace::DecodeRows(plan), rows(kind, storage, vocabulary)) << "a decoding step has room";
    }
  }
}

// In a narrow model these sums are larger than those of a norm's gradients.
TEST(Workspace, TheWeightsOfManyCombinedLayersHaveSums) {
  for (const bool deep_encoder : {true, false}) {
    ModelPlan plan = Plan();
    plan.options.encoder_layers = deep_encoder ? 5000 : 1;
    plan.options.decoder_layers = deep_encoder ? 1 : 5000;
    plan.options.decoder.combine_layers = true;
    ArenaLayout layout;
    const Workspace workspace(plan, {.source_rows = 5, .target_rows = 7, .max_length = 7}, Stream::Cpu(1),
                              Purpose::kTraining, layout);
    EXPECT_GE(workspace.norm_partials().size, WeightedSumPartials(7, 5001));
  }
}

TEST(Workspace, AGradientOfALayersInputIsWhereAStackSkipsOrHasSeveralStreams) {
  const auto has = [](const std::function<void(ModelOptions&)>& change) {
    ModelPlan plan = Plan();
    change(plan.options);
    ArenaLayout layout;
    Workspace workspace(plan, {.source_rows = 5, .target_rows = 7, .max_length = 7}, Stream::Cpu(1), Purpose::kTraining,
                        layout);
    const Arena arena = Arena::Allocate(layout).value();
    workspace.Bind(arena);
    return !workspace.layer_input_gradient(7).empty();
  };
  EXPECT_FALSE(has([](ModelOptions&) {}));
  EXPECT_TRUE(has([](ModelOptions& o) { o.encoder.skip_gain = 1; }));
  EXPECT_TRUE(has([](ModelOptions& o) { o.decoder.skip_gain = 1; }));
  EXPECT_TRUE(has([](ModelOptions& o) { o.encoder.residual_streams = 2; }));
  EXPECT_TRUE(has([](ModelOptions& o) { o.decoder.residual_streams = 2; }));
}

// The largest scratch of a chunk: every view at capacity is the sublayer's alone while it runs.
TEST(Workspace, ViewsAtCapacityDoNotOverlap) {
  ModelPlan plan = Plan();
  plan.options.encoder.ffn_inner_norm = true;  // what only some methods have
  plan.options.encoder.skip_gain = 1;
  const ActivationCapacity capacity{.source_rows = 5, .target_rows = 7, .max_length = 7};
  const Stream stream = Stream::Cpu(1);
  ArenaLayout layout;
  Workspace workspace(plan, capacity, stream, Purpose::kTraining, layout);
  const Arena arena = Arena::Allocate(layout).value();
  workspace.Bind(arena);
  const Vector scratch = workspace.attention_scratch(), partials = workspace.norm_partials();
  const Vector loss = workspace.row_loss(7), nll = workspace.row_nll(7), host = workspace.host_rows(7);
  const Matrix views[] = {workspace.branch(7).floats(),
                          workspace.branch_input_gradient(7).floats(),
                          workspace.attended_gradient(7).floats(),
                          workspace.layer_input_gradient(7),
                          workspace.logits(Workspace::kLogitRows).floats(),
                          {scratch.data, 1, scratch.size},
                          {partials.data, 1, partials.size},
                          {loss.data, 1, loss.size},
                          {nll.data, 1, nll.size},
                          {host.data, 1, host.size}};
  float number = 0;
  for (const Matrix& view : views) {
    ++number;
    ASSERT_FALSE(view.empty()) << number;
    for (int64_t i = 0; i < view.rows * view.columns; ++i) view.data[i] = number;
  }
  number = 0;
  for (const Matrix& view : views) {
    ++number;
    for (int64_t i = 0; i < view.rows * view.columns; ++i) ASSERT_EQ(view.data[i], number);
  }
}

// Of numbers around their means: x 3 and 7, F(x) 2 and 4.
TEST(ResidualProfile, AddsTheVariancesOfTheStreamAndOfTheBranch) {
  ModelOptions options = TinyModel();
  ApplyResidualMethod(ResidualMethod::kAdmin, options);
  const ModelPlan plan = ModelPlan::Make(options);
  ArenaLayout layout;
  ParameterStore parameters(plan, {0, 1}, Purpose::kInference, layout);
  const Arena arena = Arena::Allocate(layout).value();
  parameters.Bind(arena);
  const Stream stream = Stream::Cpu(1);
  ResidualProfile profile(stream, parameters);
  const std::vector<float> x = {3, 7}, sum = {5, 11};
  const ConstMatrix before(x.data(), 1, 2), behind(sum.data(), 1, 2);
  profile.Observe(stream, 0, {.tensor = DepthTensor::kBranch, .sublayer = 1, .values = before});
  profile.Observe(stream, 0, {.tensor = DepthTensor::kNormInput, .sublayer = 1, .values = behind});
  profile.Observe(stream, 0, {.tensor = DepthTensor::kOutput, .sublayer = 1, .values = before, .before = before});
  EXPECT_DOUBLE_EQ(profile.omega, std::sqrt(4.0 + 1.0));
}

}  // namespace

}  // namespace hadal
