// The norm of made-up gradients, which are a function of (parameter, element) alone, over every cut and number of
// replicas.
#include "layers/parameter_store.h"
#include "pipeline/engine/step_tail.h"

#include <cmath>

#include "gtest/gtest.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Its embedding, tied three times, is two slices.
ModelPlan Plan() {
  return TinyPlan(
      {.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .d_ff = 32, .heads = 2, .vocabulary = 66000});
}

float ElementOf(int32_t parameter, int64_t element) {
  return static_cast<float>((element * 7919 + parameter * 104729) % 2003 - 1000) * 1e-3f;
}

struct Run {
  int stages = 1;
  int replicas = 1;
  std::vector<int32_t> bad_parameters;  // a NaN in their last element
  std::function<LossSums(int rank)> loss = [](int) { return LossSums(); };
  std::function<StepVote(int rank)> vote = [](int) { return StepVote::kContinue; };
};

void FillGradients(const StageState& state, const std::vector<int32_t>& bad_parameters) {
  for (const StateSlice& slice : state.slices()) {
    const int64_t first = slice.slice * kSliceElements;
    for (int64_t i = 0; i < slice.gradient.size; ++i) slice.gradient[i] = ElementOf(slice.parameter, first + i);
    for (const int32_t bad : bad_parameters) {
      const bool ends_it = first + slice.gradient.size == state.plan().parameters[bad].elements();
      if (slice.parameter == bad && ends_it) slice.gradient[slice.gradient.size - 1] = kNan;
    }
  }
}

absl::StatusOr<GlobalGradient> ComputeOnRank(const ModelPlan& plan, const Run& run, Communicator& world) {
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                         MakePipelineLayout(plan, {.micro_batches = 4, .source_tokens = 16, .target_tokens = 16},
                                            {.replicas = run.replicas}, world.size(), world.rank()));
  const int stage = pipeline.grid.StageOf(world.rank());
  std::vector<int32_t> sublayers;
  for (int32_t s = pipeline.first_sublayer(stage, 0); s < pipeline.last_sublayer(stage, 0); ++s) sublayers.push_back(s);
  ArenaLayout layout;
  ParameterStore parameters(plan, sublayers, Purpose::kTraining, layout);
  StageState state(plan, pipeline, stage, Purpose::kTraining, layout);
  HADAL_ASSIGN_OR_RETURN(const Arena arena, Arena::Allocate(layout));
  parameters.Bind(arena);
  state.Bind(arena, parameters);
  FillGradients(state, run.bad_parameters);
  Collectives collectives(world, absl::Seconds(30));
  GradientNorm norm(plan, pipeline);
  const auto compute = [&] {
    return norm.Compute(Stream::Cpu(1), state, run.loss(world.rank()), run.vote(world.rank()), collectives);
  };
  HADAL_RETURN_IF_ERROR(compute().status());
  return compute();  // as in every step but the first
}

// What all ranks find, which must be the same.
GlobalGradient Compute(const ModelPlan& plan, const Run& run) {
  InProcessWorld world(run.stages * run.replicas);
  std::vector<GlobalGradient> found(world.size());
  const absl::Status status = world.Run([&](Communicator& rank) -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(found[rank.rank()], ComputeOnRank(plan, run, rank));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  for (const GlobalGradient& other : found) {
    EXPECT_EQ(other.first_bad_parameter, found[0].first_bad_parameter);
    EXPECT_EQ(other.finite, found[0].finite);
    EXPECT_EQ(other.loss.loss, found[0].loss.loss);
    EXPECT_EQ(other.vote, found[0].vote);
    if (found[0].first_bad_parameter < 0) {
      EXPECT_EQ(other.norm, found[0].norm);
      EXPECT_EQ(other.sublayer_norms, found[0].sublayer_norms);
    }
  }
  return found[0];
}

TEST(GradientNorm, IsTheRootOfAllSquaresAndASublayersOfItsOwn) {
  const ModelPlan plan = Plan();
  long double total = 0;
  std::vector<long double> squares(plan.sublayers.size(), 0);
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    for (int64_t i = 0; i < plan.parameters[p].elements(); ++i) {
      const long double value = ElementOf(static_cast<int32_t>(p), i);
      total += value * value;
      squares[plan.parameters[p].sublayer] += value * value;
    }
  }
  const GlobalGradient gradient = Compute(plan, {.stages = 3});
  EXPECT_NEAR(gradient.norm, std::sqrt(static_cast<double>(total)), 1e-12 * gradient.norm);
  EXPECT_TRUE(gradient.finite);
  ASSERT_EQ(gradient.sublayer_norms.size(), plan.sublayers.size());
  for (size_t s = 0; s < squares.size(); ++s) {
    EXPECT_FLOAT_EQ(gradient.sublayer_norms[s], std::sqrt(static_cast<float>(squares[s]))) << s;
  }
  // The tied table is the source embedding's; its other uses, which have nothing of their own, count nothing.
  EXPECT_GT(gradient.sublayer_norms[plan.source_embedding()], 0);
  EXPECT_EQ(gradient.sublayer_norms[plan.target_embedding()], 0);
}

// Slices are added in the order of the model, whoever owns them.
TEST(GradientNorm, HasTheSameBitsForEveryCutAndNumberOfReplicas) {
  const ModelPlan plan = Plan();
  double total = 0;
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    std::vector<float> values(plan.parameters[p].elements());
    for (int64_t i = 0; i < std::ssize(values); ++i) values[i] = ElementOf(static_cast<int32_t>(p), i);
    for (int64_t first = 0; first < std::ssize(values); first += kSliceElements) {
      total += SumOfSquares({values.data() + first, std::min(kSliceElements, std::ssize(values) - first)});
    }
  }
  for (const int replicas : {1, 3}) {
    for (int stages = 1; stages <= 4; ++stages) {
      EXPECT_EQ(Compute(plan, {.stages = stages, .replicas = replicas}).norm, std::sqrt(total))
          << stages << " stages, " << replicas << " replicas";
    }
  }
}

TEST(GradientNorm, NamesTheFirstParameterThatIsNotFinite) {
  const ModelPlan plan = Plan();
  const auto last = static_cast<int32_t>(plan.parameters.size()) - 1;
  for (const std::vector<int32_t>& bad : {std::vector<int32_t>{0}, {last, last / 2}, {last}}) {
    const GlobalGradient gradient = Compute(plan, {.stages = 2, .replicas = 2, .bad_parameters = bad});
    EXPECT_EQ(gradient.first_bad_parameter, bad.back());
    EXPECT_FALSE(gradient.finite);
    EXPECT_FALSE(std::isfinite(gradient.norm));
  }
}

TEST(GradientNorm, ALossThatIsNotFiniteMakesTheStepSo) {
  const GlobalGradient gradient =
      Compute(Plan(), {.stages = 2, .loss = [](int rank) { return LossSums{.loss = rank == 1 ? kInfinity : 0.0}; }});
  EXPECT_FALSE(gradient.finite);
  EXPECT_EQ(gradient.first_bad_parameter, -1);
}

TEST(GradientNorm, AddsTheLossesAndTheStrongestVoteCounts) {
  const GlobalGradient gradient = Compute(
      Plan(), {.stages = 2,
               .replicas = 2,
               .loss = [](int rank) { return LossSums{.loss = 0.5 * rank, .nll = 0.25 * rank, .tokens = 10 * rank}; },
               .vote = [](int rank) { return rank == 2 ? StepVote::kRequested : StepVote::kOutOfTime; }});
  EXPECT_EQ(gradient.loss.loss, 3);
  EXPECT_EQ(gradient.loss.nll, 1.5);
  EXPECT_EQ(gradient.loss.tokens, 60);
  EXPECT_EQ(gradient.vote, StepVote::kRequested);
}

}  // namespace
}  // namespace hadal
