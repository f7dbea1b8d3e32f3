// Where weights, their rounded copies, their fp32 masters and gradients lie.
#include "layers/parameter_store.h"

#include <optional>

#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

// The tables are one parameter of two slices.
ModelPlan SmallPlan(Storage storage, ResidualMethod method = ResidualMethod::kDeepNorm) {
  ModelOptions model = TinyModel({.d_model = 16, .d_ff = 40, .heads = 2, .vocabulary = 70000});
  ApplyResidualMethod(method, model);
  ModelPlan plan = ModelPlan::Make(model);
  plan.compute_storage = storage;
  return plan;
}

std::vector<int32_t> From(const ModelPlan& plan, int32_t first) {
  std::vector<int32_t> sublayers;
  for (int32_t s = first; s < std::ssize(plan.sublayers); ++s) sublayers.push_back(s);
  return sublayers;
}

class Bound {
 public:
  Bound(const ModelPlan& plan, int32_t first_sublayer, Purpose purpose,
        const std::vector<SliceRange>& updated = {SliceRange()})
      : store_(plan, From(plan, first_sublayer), purpose, layout_, updated), arena_(*Arena::Allocate(layout_)) {
    store_.Bind(arena_);
  }
  const ParameterStore& store() const { return store_; }
  ParameterStore& store() { return store_; }
  int64_t bytes() const { return layout_.total_bytes(); }

 private:
  ArenaLayout layout_;
  ParameterStore store_;
  Arena arena_;
};

TEST(ParameterStoreTest, OneCopyInFp32) {
  const ModelPlan plan = SmallPlan(Storage::kFloat32);
  const Bound bound(plan, 0, Purpose::kTraining, {{.begin = {3, 0}, .end = {5, 0}}});
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
    EXPECT_EQ(bound.store().WeightVector(p).size, plan.parameters[p].elements());
    EXPECT_EQ(bound.store().AsRead(p).data, bound.store().Weight(p).data);
    EXPECT_TRUE(bound.store().RoundedSlice(p, 0).empty());
  }
}

// Masters of the table's second slice and of what follows, up to somewhere in the middle, and of some more behind a
// gap: in a run they lie back to back as the rounded ones do, runs in their order and on 16 bytes where the rounded
// ones are.
TEST(ParameterStoreTest, MastersLieWhereTheyAreUpdated) {
  const ModelPlan plan = SmallPlan(Storage::kBFloat16);
  ASSERT_EQ(SliceCount(plan.parameters[0]), 2);
  const std::vector<SliceRange> updated{{.begin = {0, 1}, .end = {12, 0}}, {.begin = {14, 0}, .end = {20, 0}}};
  const auto range_of = [&](int32_t parameter, int64_t slice) {
    return std::find_if(updated.begin(), updated.end(),
                        [&](const SliceRange& range) { return range.Holds(parameter, slice); });
  };
  const Bound bound(plan, 0, Purpose::kTraining, updated);
  const ParameterStore& store = bound.store();
  const float* const first_master = store.WeightSlice(0, 1).data;
  const BFloat16* const first_rounded = store.RoundedSlice(0, 1).data;
  std::vector<std::optional<std::ptrdiff_t>> distances(updated.size());
  const float* end = first_master;
  int masters = 0;
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
    for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
      const Vector weight = store.WeightSlice(p, slice);
      const VectorOf<BFloat16> rounded = store.RoundedSlice(p, slice);
      if (!plan.ReadByProductsAlone(p)) {
        EXPECT_FALSE(weight.empty());
        EXPECT_TRUE(rounded.empty());
        EXPECT_EQ(store.AsRead(p).storage, Storage::kFloat32);
        continue;
      }
      const auto range = range_of(p, slice);
      EXPECT_EQ(weight.empty(), range == updated.end()) << plan.ParameterName(p);
      EXPECT_EQ(store.AsRead(p).storage, Storage::kBFloat16);
      if (weight.empty()) continue;
      EXPECT_GE(weight.data, end);
      end = weight.data + weight.size;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(weight.data) / sizeof(float) % 8,
                reinterpret_cast<uintptr_t>(rounded.data) / sizeof(BFloat16) % 8);
      std::optional<std::ptrdiff_t>& distance = distances[range - updated.begin()];
      const std::ptrdiff_t here = (weight.data - first_master) - (rounded.data - first_rounded);
      if (!distance) distance = here;
      EXPECT_EQ(distance, here) << "from one master of the run to the next it is as far as from rounded to rounded";
      ++masters;
    }
  }
  EXPECT_GT(masters, 8);
  EXPECT_NE(distances[0], distances[1]);
}

TEST(ParameterStoreTest, RoundsTheMastersThatAreHere) {
  const ModelPlan plan = SmallPlan(Storage::kBFloat16);
  const Bound bound(plan, 0, Purpose::kTraining, {{.begin = {2, 0}, .end = {9, 0}}});
  const ParameterStore& store = bound.store();
  for (int32_t p = 2; p < 9; ++p) {
    const Vector weight = store.WeightSlice(p, 0);
    for (int64_t i = 0; i < weight.size; ++i) weight[i] = 1.0f + static_cast<float>(p) / 7 + static_cast<float>(i) / 97;
  }
  store.RoundMasters(Stream::Cpu(1));
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
    const VectorOf<BFloat16> rounded = store.RoundedSlice(p, 0);
    const Vector weight = store.WeightSlice(p, 0);
    for (int64_t i = 0; i < rounded.size; ++i) {
      ASSERT_EQ(rounded[i].bits, weight.empty() ? 0 : RoundedToBFloat16(weight[i]).bits)
          << plan.ParameterName(p) << " " << i;
    }
  }
}

// Stages behind the table's owner read it rounded and keep no master of it, but to translate with.
TEST(ParameterStoreTest, AnotherStagesTableIsReadAlone) {
  const ModelPlan plan = SmallPlan(Storage::kBFloat16);
  const int32_t embedding = plan.target_embedding();
  const Bound training(plan, embedding, Purpose::kTraining);
  EXPECT_TRUE(training.store().WeightSlice(0, 0).empty());
  EXPECT_EQ(training.store().RoundedSlice(0, 1).size, plan.parameters[0].elements() - kSliceElements);
  for (const int32_t p : training.store().owned()) EXPECT_FALSE(training.store().WeightSlice(p, 0).empty());
  const Bound inference(plan, embedding, Purpose::kInference);
  EXPECT_EQ(inference.store().WeightVector(0).size, plan.parameters[0].elements());
}

// Adam and messages walk long runs: what products read, then the rest, weights and gradients alike.
TEST(ParameterStoreTest, PacksAllThatOneProductReads) {
  ModelOptions model = TinyModel({.d_model = 32, .d_ff = 32, .heads = 2});
  model.block.attention_gate = true;
  const ModelPlan plan = ModelPlan::Make(model);
  Bound bound(plan, 0, Purpose::kInference);
  bound.store().PackWeights();
  int gates = 0;
  for (int32_t s = 0; s < std::ssize(plan.sublayers); ++s) {
    if (plan.ParameterOf(s, ParameterRole::kGateWeight) < 0) continue;
    ++gates;
    const int32_t query = plan.ParameterOf(s, ParameterRole::kQueryWeight);
    EXPECT_EQ(bound.store().ProductWeight(query, 4).storage, Storage::kPanels);  // aborts if some are not
  }
  EXPECT_EQ(gates, 2);
}

TEST(ParameterStoreTest, ParametersOfASublayerLieBackToBack) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    const ModelPlan plan = SmallPlan(storage);
    const Bound bound(plan, 0, Purpose::kTraining);
    const SublayerRecord& attention = plan.sublayers[1];
    for (const Storage read : {Storage::kFloat32, Storage::kBFloat16}) {
      int32_t last = -1;
      for (int32_t p = attention.first_parameter; p < attention.first_parameter + attention.parameters; ++p) {
        if (plan.read_storage(p) != read) continue;
        const Vector weight = bound.store().WeightVector(p), gradient = bound.store().GradientVector(p);
        if (last >= 0) {
          const Vector before = bound.store().WeightVector(last);
          EXPECT_EQ(weight.data, before.data + before.size) << plan.ParameterName(p);
          EXPECT_EQ(gradient.data, bound.store().GradientVector(last).data + before.size) << plan.ParameterName(p);
        }
        last = p;
      }
    }
  }
}

TEST(ParameterStoreDeathTest, AMasterThatIsNotHereIsNotRead) {
  const ModelPlan plan = SmallPlan(Storage::kBFloat16);
  const Bound bound(plan, 0, Purpose::kTraining, {{.begin = {0, 1}, .end = {3, 0}}});
  EXPECT_DEATH(static_cast<void>(bound.store().Weight(0)), "data != nullptr");
}

}  // namespace
}  // namespace hadal
