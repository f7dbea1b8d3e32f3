// The choice of what a rank recomputes, against all plans there are.
#include "pipeline/layout/recompute_plan.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct AllPlans {
  std::vector<double> least_costs;  // within each limit
  int64_t fewest_bytes = kNoLimit;
};
AllPlans TryAll(const RecomputeGraph& graph, const std::vector<int64_t>& limits) {
  AllPlans all{.least_costs = std::vector<double>(limits.size(), kInfinity)};
  const std::function<void(size_t, double, int64_t, int64_t)> go_on = [&](size_t node, double cost, int64_t bytes,
                                                                          int64_t buffer) {
    for (const RecomputeStep& step : graph.steps[node]) {
      go_on(step.to, cost + step.cost, bytes + step.bytes, std::max(buffer, step.buffer_bytes));
    }
    if (node + 1 < graph.steps.size()) return;
    all.fewest_bytes = std::min(all.fewest_bytes, bytes + buffer);
    for (size_t i = 0; i < limits.size(); ++i) {
      if (bytes + buffer <= limits[i]) all.least_costs[i] = std::min(all.least_costs[i], cost);
    }
  };
  go_on(0, 0, 0, 0);
  return all;
}

ModelPlan Plan(ResidualMethod method, int32_t layers) {
  ModelOptions model = TinyModel(
      {.encoder_layers = layers, .decoder_layers = layers, .d_model = 16, .d_ff = 64, .heads = 2, .max_positions = 64});
  ApplyResidualMethod(method, model);
  return ModelPlan::Make(model);
}

PipelineLayout Layout(const ModelPlan& plan, PipelineOptions options) {
  options.recompute_every = 1;
  constexpr BatchOptions kBatch{.micro_batches = 4, .source_tokens = 64, .target_tokens = 48};
  return MakePipelineLayout(plan, kBatch, options, /*ranks=*/2).value();
}

// `count` limits from the fewest bytes to those that keep all.
std::vector<int64_t> Limits(const RecomputeGraph& graph, int count) {
  const int64_t least = ChooseRecompute(graph, 0).bytes, most = ChooseRecompute(graph, kNoLimit).bytes;
  std::vector<int64_t> limits;
  for (int i = 0; i < count; ++i) limits.push_back(least + (most - least) * i / count);
  return limits;
}

void ExpectTheBestOfAllPlans(const RecomputeGraph& graph) {
  const std::vector<int64_t> limits = Limits(graph, 12);
  const AllPlans all = TryAll(graph, limits);
  EXPECT_EQ(limits.front(), all.fewest_bytes);
  EXPECT_EQ(ChooseRecompute(graph, all.fewest_bytes - 1).lower_bound, kInfinity);
  for (size_t i = 0; i < limits.size(); ++i) {
    const RecomputeChoice choice = ChooseRecompute(graph, limits[i]);
    EXPECT_NEAR(choice.cost, all.least_costs[i], 1e-9 * choice.cost) << i;
    EXPECT_LE(choice.bytes, limits[i]);
    EXPECT_DOUBLE_EQ(choice.lower_bound, choice.cost);
  }
}

// Up to 12 sublayers on a rank, whose kinds, methods and schedules differ; then with numbers as no model has them.
TEST(RecomputePlan, IsTheBestOfAllPlans) {
  std::minstd_rand random(3);
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kDlclPre, ResidualMethod::kAttnRes}) {
    const ModelPlan plan = Plan(method, 4);
    for (const PipelineOptions& options : {PipelineOptions{},
                                           PipelineOptions{.schedule = ScheduleKind::k1F1BSplit},
                                           {.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B}}) {
      for (int rank = 0; rank < 2; ++rank) {
        RecomputeGraph graph = MakeRecomputeGraph(plan, Layout(plan, options), rank);
        ExpectTheBestOfAllPlans(graph);
        for (std::vector<RecomputeStep>& steps : graph.steps) {
          for (RecomputeStep& step : steps) {
            step.cost *= 1 + static_cast<double>(random() % 8);
            step.bytes = step.bytes * static_cast<int64_t>(1 + random() % 8) / 3;
          }
        }
        ExpectTheBestOfAllPlans(graph);
      }
    }
  }
}

TEST(RecomputePlan, IsNearTheLowerBoundWhereTheModelIsDeep) {
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn}) {
    const ModelPlan plan = Plan(method, 100);
    for (int rank = 0; rank < 2; ++rank) {
      const RecomputeGraph graph = MakeRecomputeGraph(plan, Layout(plan, {}), rank);
      for (const int64_t limit : Limits(graph, 16)) {
        const RecomputeChoice choice = ChooseRecompute(graph, limit);
        EXPECT_LE(choice.cost, 1.01 * choice.lower_bound) << limit;
        EXPECT_LE(choice.bytes, limit);
      }
    }
  }
}

}  // namespace
}  // namespace hadal
