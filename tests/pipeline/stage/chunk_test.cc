// A chunk's backward in two halves. Everything else of a chunk: tests/integration.
#include "pipeline/stage/chunk.h"

#include "gmock/gmock.h"
#include "tests/support/bound_model.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kFirst = 1, kLast = 4;  // two sublayers of the encoder's first layer, one of its second

// Two micro-batches on a chunk with room for both.
class ChunkHalvesTest : public ::testing::Test {
 protected:
  ChunkHalvesTest() {
    shared_.ReserveRequired(kSpec.pending_slots, layout_);
    arena_ = Arena::Allocate(layout_).value();
    shared_.Bind(arena_);
    chunk_.Bind(arena_);
    for (int32_t m = 0; m < 2; ++m) batches_[m].micro_batch = m;
  }

  SublayerContext Context(int32_t m) const {
    const SublayerContext c = model_.Context();
    return {.stream = c.stream,
            .parameters = c.parameters,
            .workspace = c.workspace,
            .batch = batches_[m],
            .scalars = c.scalars};
  }
  void Forward() {
    model_.ClearGradients();
    for (int32_t m = 0; m < 2; ++m) {
      SublayerContext context = Context(m);
      const OwnedMatrix x(batches_[m].source_rows(), kWidth, 7 + m, 1.0f);
      const ConstAnyMatrix inputs[] = {x.view()};
      chunk_.Forward(context, inputs);
    }
  }
  // Calls `backward` with the context and the gradients of micro-batch m.
  void ForEachGradient(
      const std::function<void(SublayerContext&, std::span<const ConstAnyMatrix>, int32_t)>& backward) {
    for (int32_t m = 0; m < 2; ++m) {
      SublayerContext context = Context(m);
      const OwnedMatrix d_y(batches_[m].source_rows(), kWidth, 17 + m, 1.0f);
      const ConstAnyMatrix gradients[] = {d_y.view()};
      backward(context, gradients, m);
    }
  }

  static constexpr int64_t kWidth = 16;
  static constexpr ChunkSpec kSpec{.first = kFirst, .last = kLast, .slots = 2, .input_slots = 2, .pending_slots = 2};
  const BoundModel model_{SmallModel(ResidualMethod::kDeepNorm, NarrowShape(2)), PairsOf({4, 1, 5}, {3, 6, 2}, 23)};
  std::vector<PackedBatch> batches_ = {model_.batch(), model_.batch()};
  ArenaLayout layout_;
  SharedActivations shared_{model_.plan(), model_.capacity(), Purpose::kTraining, layout_};
  Chunk chunk_{model_.plan(), kSpec, model_.capacity(), shared_, layout_};
  Arena arena_;
};

// When gradients are said to be complete they are, and no weight half of the sublayer below has begun.
TEST_F(ChunkHalvesTest, WeightHalvesRunSublayerBySublayerFromTheDeepest) {
  Forward();
  ForEachGradient([&](SublayerContext& context, std::span<const ConstAnyMatrix> gradients, int32_t) {
    chunk_.Backward(context, gradients);
  });
  const std::vector<float> whole = model_.AllGradients();
  const auto of_sublayer = [&](int32_t sublayer) {
    std::vector<float> values;
    for (size_t p = 0; p < model_.plan().parameters.size(); ++p) {
      if (model_.plan().parameters[p].sublayer != sublayer) continue;
      const std::vector<float> gradient = model_.GradientOf(static_cast<int32_t>(p));
      values.insert(values.end(), gradient.begin(), gradient.end());
    }
    return values;
  };
  std::vector<std::vector<float>> expected(kLast), before(kLast);  // by sublayer
  for (int32_t s = kFirst; s < kLast; ++s) expected[s] = of_sublayer(s);

  Forward();
  std::vector<PendingHalf> halves;
  ForEachGradient([&](SublayerContext& context, std::span<const ConstAnyMatrix> gradients, int32_t m) {
    chunk_.BackwardInput(context, gradients, m);
    halves.push_back({Context(m), m});
  });
  for (int32_t s = kFirst; s < kLast; ++s) before[s] = of_sublayer(s);
  std::vector<int32_t> completed;
  const std::function<void(int32_t)> complete = [&](int32_t first) {
    completed.push_back(first);
    for (int32_t s = first; s < kLast; ++s) EXPECT_TRUE(SameBits(of_sublayer(s), expected[s])) << s;
    if (first == kFirst) return;
    EXPECT_TRUE(SameBits(of_sublayer(first - 1), before[first - 1])) << first - 1;
  };
  chunk_.BackwardWeight(halves, {.complete = &complete});
  EXPECT_THAT(completed, ElementsAre(3, 2, 1));
  EXPECT_TRUE(SameBits(model_.AllGradients(), whole));
}

}  // namespace
}  // namespace hadal::testing
