// What every branch F promises (chunk_part.h), without a reference: its gradients are the slopes of <w, F(x)>, and each
// verb replaces or adds as its header says. Dropout is on: its randomness is counted, so that F is a function.
#include "layers/branch_parts.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/bound_model.h"
#include "tests/support/directional_difference.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

// Of gradients that are added to others (NearReference). An output norm makes them larger.
constexpr double kMagnitude = 8, kMultiple = 4;

struct Place {
  const char* name;
  SublayerKind kind;
  Stack stack;
};

constexpr Place kPlaces[] = {{"SelfAttention", SublayerKind::kSelfAttention, Stack::kEncoder},
                             {"CausalSelfAttention", SublayerKind::kSelfAttention, Stack::kDecoder},
                             {"CrossAttention", SublayerKind::kCrossAttention, Stack::kDecoder},
                             {"FeedForward", SublayerKind::kFeedForward, Stack::kDecoder}};

int32_t SublayerAt(const ModelPlan& plan, const Place& place) {
  for (int32_t s = 0; s < plan.output_head(); ++s) {
    if (plan.sublayers[s].kind == place.kind && plan.sublayers[s].stack == place.stack) return s;
  }
  ADD_FAILURE() << "no such sublayer";
  return 0;
}

class BranchTest : public ::testing::TestWithParam<std::tuple<Place, ResidualMethod>> {
 protected:
  BranchTest()
      : model_(SmallModel(std::get<ResidualMethod>(GetParam()), NarrowShape(1)), PairsOf({4, 1, 5}, {3, 6, 2}, 23)),
        sublayer_(SublayerAt(model_.plan(), std::get<Place>(GetParam()))),
        branch_(MakeBranch(model_.plan(), sublayer_)),
        x_(model_.capacity().rows(std::get<Place>(GetParam()).stack), width(), 1, 1.0f),
        encoder_output_(model_.capacity().source_rows, width(), 2, 1.0f),
        y_(x_.rows, width()),
        w_(x_.rows, width(), 3, 1.0f),
        saved_(branch_->BytesToSave(model_.capacity()).all()),
        pending_(branch_->PendingBytes(model_.capacity())) {}

  int64_t width() const { return model_.plan().options.d_model; }
  bool reads_encoder_output() const { return std::get<Place>(GetParam()).kind == SublayerKind::kCrossAttention; }

  PartTensors Tensors() {
    PartTensors tensors{
        .x = x_.view(), .y = y_.view(), .saved = saved_.data(), .d_y = w_.view(), .pending = pending_.data()};
    if (reads_encoder_output()) tensors.encoder_output = encoder_output_.view();
    return tensors;
  }

  double Loss() {
    branch_->Forward(model_.Context(), Tensors());
    double sum = 0;
    for (size_t i = 0; i < y_.values.size(); ++i) sum += double{w_.values[i]} * double{y_.values[i]};
    return sum;
  }

  // Both halves of a backward behind a forward; what they add to is left as it comes.
  void Backward(bool accumulate, OwnedMatrix& d_x, OwnedMatrix& d_encoder_output) {
    const SublayerContext context = model_.Context();
    PartTensors tensors = Tensors();
    tensors.d_x = d_x.view();
    if (reads_encoder_output()) tensors.d_encoder_output = d_encoder_output.view();
    branch_->Forward(context, tensors);
    branch_->BackwardInput(context, tensors, accumulate);
    branch_->BackwardWeight(context, tensors);
  }

  // Parameters of the sublayer that the residual connection reads, and F does not.
  bool IsOfTheConnection(int32_t parameter) const {
    switch (model_.plan().parameters[parameter].role) {
      case ParameterRole::kNormScale:
      case ParameterRole::kNormShift:
      case ParameterRole::kClosingNormScale:
      case ParameterRole::kClosingNormShift:
      case ParameterRole::kClosingShift:
      case ParameterRole::kBranchScale:
        return true;
      default:
        return parameter == branch_->output_bias();
    }
  }

  // Elements of y are sums of some 20 terms of about their size, behind two or three such sums.
  DifferenceModel Model() const {
    double squares = 0;
    for (const float v : y_.values) squares += double{v} * v;
    return {.rounding = 8 * 0x1p-24 * std::sqrt(squares)};
  }
  ::testing::AssertionResult IsGradient(std::span<float> variable, const std::vector<float>& gradient,
                                        const DifferenceModel& model, uint32_t seed) {
    return IsGradientAlongDirections(
        variable, gradient, [this] { return Loss(); }, model, seed);
  }

  BoundModel model_;
  const int32_t sublayer_;
  const std::unique_ptr<Branch> branch_;
  OwnedMatrix x_, encoder_output_, y_, w_;
  std::vector<std::byte> saved_, pending_;
};

TEST_P(BranchTest, GradientsAreTheSlopesOfItsOutput) {
  OwnedMatrix d_x(x_.rows, width()), d_encoder_output(encoder_output_.rows, width());
  Backward(/*accumulate=*/false, d_x, d_encoder_output);
  EXPECT_TRUE(IsGradient(x_.values, d_x.values, Model(), 100)) << "x";
  if (reads_encoder_output()) {
    EXPECT_TRUE(IsGradient(encoder_output_.values, d_encoder_output.values, Model(), 101)) << "encoder output";
  }
  const SublayerRecord& record = model_.plan().sublayers[sublayer_];
  for (int32_t p = record.first_parameter; p < record.first_parameter + record.parameters; ++p) {
    SCOPED_TRACE(model_.plan().ParameterName(p));
    const std::vector<float> gradient = model_.GradientOf(p);
    if (IsOfTheConnection(p)) {
      EXPECT_TRUE(SameBits(gradient, std::vector<float>(gradient.size()))) << "no parameter of the branch";
      continue;
    }
    DifferenceModel model = Model();
    model.may_vanish = model_.plan().parameters[p].role == ParameterRole::kKeyBias;  // softmax does not see it
    EXPECT_TRUE(IsGradient(model_.WeightOf(p), gradient, model, p));
  }
}

std::vector<double> Sum(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = double{a[i]} + double{b[i]};
  return sum;
}

TEST_P(BranchTest, GradientOfTheInputReplacesOrAddsAsAskedThoseOfMemoryAndWeightsAreAdded) {
  OwnedMatrix d_x(x_.rows, width(), std::numeric_limits<float>::quiet_NaN()),
      d_encoder_output(encoder_output_.rows, width());
  Backward(/*accumulate=*/false, d_x, d_encoder_output);
  const std::vector<float> once = model_.AllGradients();
  const OwnedMatrix before_x(x_.rows, width(), 5, 1.0f), before_encoder_output(encoder_output_.rows, width(), 6, 1.0f);
  OwnedMatrix added_x = before_x, added_encoder_output = before_encoder_output;
  Backward(/*accumulate=*/true, added_x, added_encoder_output);
  EXPECT_TRUE(NearReference(added_x.values, Sum(before_x.values, d_x.values), kMagnitude, kMultiple));
  EXPECT_TRUE(NearReference(added_encoder_output.values, Sum(before_encoder_output.values, d_encoder_output.values),
                            kMagnitude, kMultiple));
  EXPECT_TRUE(NearReference(model_.AllGradients(), Sum(once, once), kMagnitude, kMultiple));
}

// F's output of a new model.
std::vector<float> OutputOf(const ModelOptions& options, const Place& place, bool training) {
  const BoundModel model(options, PairsOf({4, 1, 5}, {3, 6, 2}, 23));
  const std::unique_ptr<Branch> branch = MakeBranch(model.plan(), SublayerAt(model.plan(), place));
  const int64_t width = model.plan().options.d_model;
  const OwnedMatrix x(model.capacity().rows(place.stack), width, 1, 1.0f);
  const OwnedMatrix encoder_output(model.capacity().source_rows, width, 2, 1.0f);
  OwnedMatrix y(x.rows, width);
  std::vector<std::byte> saved(branch->BytesToSave(model.capacity()).all());
  PartTensors tensors{.x = x.view(), .y = y.view(), .saved = saved.data()};
  if (place.kind == SublayerKind::kCrossAttention) tensors.encoder_output = encoder_output.view();
  SublayerContext context = model.Context();
  context.scalars.training = training;
  branch->Forward(context, tensors);
  return y.values;
}

TEST(BranchTest, OnlyItsOwnDropoutActsOnIt) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    const auto training_changes_output = [&](double own, double others) {
      ModelOptions options = SmallModel(ResidualMethod::kPostLn, NarrowShape(1));
      const bool attends = place.kind != SublayerKind::kFeedForward;
      options.dropout = others;
      options.attention_dropout = attends ? own : others;
      options.activation_dropout = attends ? others : own;
      return !SameBits(OutputOf(options, place, /*training=*/true), OutputOf(options, place, /*training=*/false));
    };
    EXPECT_FALSE(training_changes_output(0, 0.5));
    EXPECT_TRUE(training_changes_output(0.5, 0));
  }
}

INSTANTIATE_TEST_SUITE_P(PlacesAndMethods, BranchTest,
                         ::testing::Combine(::testing::ValuesIn(kPlaces),
                                            ::testing::Values(ResidualMethod::kPostLn, ResidualMethod::kSubLn,
                                                              ResidualMethod::kNormFormer, ResidualMethod::kRFixup,
                                                              ResidualMethod::kKeel, ResidualMethod::kPeriLn)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<Place>(info.param).name, "_",
                                               ResidualMethodName(std::get<ResidualMethod>(info.param)));
                         });

}  // namespace
}  // namespace hadal::testing
