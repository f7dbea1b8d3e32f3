// The optimizer's settings that depend on the parameter: which weights an update changes otherwise, bit for bit.
#include <cmath>

#include "gtest/gtest.h"
#include "layers/model_plan.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

class ParameterGroupsTest : public ::testing::Test {
 protected:
  ParameterGroupsTest() {
    spec_.model = SmallModel(ResidualMethod::kPreLn, {.d_model = 32, .vocabulary = 40});
    spec_.batch = {.micro_batches = 2, .source_tokens = 96, .target_tokens = 96};
    spec_.optimizer.epsilon = 1e-3;
    spec_.learning_rate = 1e-2;
    spec_.steps = 1;
  }
  RunOutcome Run(const RunSpec& spec) const { return Train(spec, RandomCorpusFor(spec.model, 100, 24, 5)); }
  const ParameterRecord& parameter(size_t p) const { return plan().parameters[p]; }
  const ModelPlan& plan() const {
    if (plan_.parameters.empty()) plan_ = ModelPlan::Make(spec_.model);
    return plan_;
  }

  RunSpec spec_;

 private:
  mutable ModelPlan plan_;
};

TEST_F(ParameterGroupsTest, VectorsDecayOnlyIfAsked) {
  const RunOutcome none = Run(spec_);
  spec_.optimizer.weight_decay = 0.5;
  const RunOutcome all = Run(spec_);
  spec_.optimizer.decays_vectors = false;
  const RunOutcome matrices = Run(spec_);
  int scales = 0;
  for (size_t p = 0; p < plan().parameters.size(); ++p) {
    const std::string name = plan().ParameterName(static_cast<int32_t>(p));
    if (!parameter(p).is_vector()) {
      EXPECT_EQ(matrices.weights[p], all.weights[p]) << name;
      EXPECT_NE(matrices.weights[p], none.weights[p]) << name;
      continue;
    }
    EXPECT_EQ(matrices.weights[p], none.weights[p]) << name;
    if (parameter(p).init == InitKind::kZero) continue;  // 0 decays to 0
    EXPECT_NE(all.weights[p], none.weights[p]) << name;
    ++scales;
  }
  EXPECT_GT(scales, 10);
}

class FrozenParametersTest : public ParameterGroupsTest, public ::testing::WithParamInterface<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, FrozenParametersTest,
                         ::testing::Values(OptimizerKind::kAdam, OptimizerKind::kMuon));

// In every layout; and what is not frozen gets the update that it would get beside what is. Measuring updates changes
// no bit.
TEST_P(FrozenParametersTest, StayAsTheyAre) {
  spec_.optimizer.kind = GetParam();
  spec_.optimizer.weight_decay = 0.1;
  const RunOutcome free = Run(spec_);
  RunSpec still = spec_;
  still.learning_rate = 0;
  const RunOutcome before = Run(still);
  for (const ParameterRecord& record : plan().parameters) {
    spec_.frozen.push_back(record.sublayer % 2 == 0 || record.is_vector());  // the tied table, too
  }
  const RunOutcome frozen = Run(spec_);
  for (size_t p = 0; p < plan().parameters.size(); ++p) {
    const std::string name = plan().ParameterName(static_cast<int32_t>(p));
    EXPECT_EQ(frozen.weights[p], (spec_.frozen[p] ? before : free).weights[p]) << name;
    if (!spec_.frozen[p]) continue;
    EXPECT_EQ(frozen.first_moments[p], std::vector<float>(frozen.weights[p].size())) << name;
  }
  EXPECT_LT(frozen.gradient_norm[0], free.gradient_norm[0]);
  spec_.optimizer.clip_norm = 0.5 * frozen.gradient_norm[0];
  spec_.steps = 3;
  const RunOutcome whole = Run(spec_);
  spec_.ranks = 3;
  spec_.pipeline.recompute_every = 2;
  const TemporaryDirectory directory;
  spec_.depth_directory = directory.path();
  EXPECT_EQ(FirstDifference(whole, Run(spec_)), "");
  spec_.depth_directory.clear();
  spec_.ranks = 4;
  spec_.pipeline.replicas = 2;
  const RunOutcome sharded = Run(spec_);
  for (size_t p = 0; p < spec_.frozen.size(); ++p) {
    EXPECT_EQ(sharded.weights[p] == before.weights[p], spec_.frozen[p])
        << plan().ParameterName(static_cast<int32_t>(p));
  }
  spec_.pipeline.shard_optimizer_state = false;
  EXPECT_EQ(FirstDifference(sharded, Run(spec_)), "") << "in other ranges";
}

// fc1 and fc2 have more than 2^20 elements: a direction of the last slice's norm would diverge.
TEST_F(ParameterGroupsTest, MuonNormsAMatrixOfSeveralSlicesAsAWhole) {
  constexpr int32_t kWide = 33'000;
  spec_.model = SmallModel(ResidualMethod::kPreLn,
                           {.encoder_layers = 1, .decoder_layers = 1, .d_model = 32, .d_ff = kWide, .vocabulary = 40});
  spec_.optimizer.kind = OptimizerKind::kMuon;
  const RunOutcome after = Run(spec_);
  const double step = spec_.learning_rate * 0.2 * std::sqrt(kWide);
  spec_.learning_rate = 0;
  const RunOutcome before = Run(spec_);
  int wide = 0;
  for (size_t p = 0; p < plan().parameters.size(); ++p) {
    if (parameter(p).elements() <= kSliceElements) continue;
    double squares = 0;
    for (size_t i = 0; i < after.weights[p].size(); ++i) {
      const double moved = after.weights[p][i] - before.weights[p][i];
      squares += moved * moved;
    }
    EXPECT_NEAR(std::sqrt(squares / 32) / step, 1, 0.5) << plan().ParameterName(static_cast<int32_t>(p));
    ++wide;
  }
  EXPECT_EQ(wide, 4);
}

// A word that no sentence has gets a gradient of 0: 0 / (0 + epsilon).
TEST_F(ParameterGroupsTest, AnEpsilonThatNoFloatHoldsDividesNothingByZero) {
  spec_.optimizer.epsilon = 1e-40;
  for (const std::vector<float>& weights : Run(spec_).weights) {
    for (const float w : weights) ASSERT_TRUE(std::isfinite(w));
  }
}

TEST_F(ParameterGroupsTest, EpsilonOfAStacksSublayers) {
  const RunOutcome before = Run(spec_);
  RunSpec smaller = spec_;
  smaller.optimizer.epsilon *= 0.25;
  const RunOutcome everywhere = Run(smaller);
  spec_.model.encoder.adam_epsilon_factor = 0.25;
  const RunOutcome encoder = Run(spec_);
  for (size_t p = 0; p < plan().parameters.size(); ++p) {
    const SublayerRecord& sublayer = plan().sublayers[parameter(p).sublayer];
    const bool smaller_here = sublayer.stack == Stack::kEncoder && sublayer.layer >= 0 && !parameter(p).is_vector();
    EXPECT_EQ(encoder.weights[p], (smaller_here ? everywhere : before).weights[p])
        << plan().ParameterName(static_cast<int32_t>(p));
    if (smaller_here) {
      EXPECT_NE(everywhere.weights[p], before.weights[p]);
    }
  }
  spec_.ranks = 4;
  spec_.pipeline.replicas = 2;
  const RunOutcome sharded = Run(spec_);
  spec_.pipeline.shard_optimizer_state = false;
  EXPECT_EQ(FirstDifference(sharded, Run(spec_)), "") << "in other ranges";
}

// The table's rate depends neither on the stage that holds it nor on the replica that keeps its moments.
TEST_F(ParameterGroupsTest, ABaseWidthGivesTheSameBitsInEveryLayout) {
  spec_.optimizer.weight_decay = 0.1;
  spec_.steps = 3;
  const RunOutcome plain = Run(spec_);
  spec_.model.base_width = spec_.model.d_model;
  EXPECT_EQ(FirstDifference(plain, Run(spec_)), "") << "of the base itself";
  spec_.model.base_width = spec_.model.d_model / 2;
  const RunOutcome whole = Run(spec_);
  EXPECT_NE(FirstDifference(plain, whole), "");
  spec_.ranks = 3;
  spec_.pipeline.recompute_every = 2;
  EXPECT_EQ(FirstDifference(whole, Run(spec_)), "");
  spec_.ranks = 4;
  spec_.pipeline.replicas = 2;
  const RunOutcome sharded = Run(spec_);
  spec_.pipeline.shard_optimizer_state = false;
  EXPECT_EQ(FirstDifference(sharded, Run(spec_)), "") << "in other ranges";
}

}  // namespace
}  // namespace hadal::testing
