// Where a stack is cut into segments changes no bit, of what it makes and of any gradient: recomputation and
// the borders of chunks rest on it. Whether the gradients are right: tests/integration/model_gradient_test.cc.
#include "layers/chunk_part.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/support/bound_model.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

constexpr int32_t kLayers = 3;

std::vector<ResidualMethod> MethodsWithSegmentsOfSeveralLayers() {
  std::vector<ResidualMethod> methods;
  for (const ResidualMethod method : AllResidualMethods()) {
    const StackMethod stack = SmallModel(method, NarrowShape(1)).decoder;
    if (!stack.combine_layers && !stack.reads_blocks()) methods.push_back(method);  // these keep a history
  }
  return methods;
}

// What a forward and a backward through a stack leave.
struct Outcome {
  std::vector<float> out, second, d_x, d_encoder_output, gradients;
};

class Stacks {
 public:
  explicit Stacks(const ModelOptions& model) : model_(model, PairsOf({4, 1, 5}, {3, 6, 2}, 23)) {}

  // Sublayers [first, last).
  struct Range {
    int32_t first, last;
  };
  Range RangeOf(Stack stack) const {
    const ModelPlan& plan = model_.plan();
    return stack == Stack::kEncoder ? Range{plan.source_embedding() + 1, plan.target_embedding()}
                                    : Range{plan.target_embedding() + 1, plan.output_head()};
  }

  // Weights of sublayers [first, last) from a model that has as many of as many elements in the same order.
  void TakeWeights(const Stacks& other, int32_t first, int32_t last) {
    for (int32_t s = first; s < last; ++s) {
      const SublayerRecord &to = model_.plan().sublayers[s], &from = other.model_.plan().sublayers[s];
      for (int32_t i = 0; i < to.parameters; ++i) {
        const std::span<float> weights = other.model_.WeightOf(from.first_parameter + i);
        std::copy(weights.begin(), weights.end(), model_.WeightOf(to.first_parameter + i).begin());
      }
    }
  }

  // Weights of the plain residual, and maps that make each of four streams one: H_pre (1, 0, 0, 0),
  // H_post (1, 1, 1, 1), H_res 1.
  void BecomePlain(const Stacks& plain) {
    constexpr float kOne = 30, kZero = -110;  // of a sigmoid
    std::vector<float> biases = {kOne, kZero, kZero, kZero, 0, 0, 0, 0};
    for (int k = 0; k < 16; ++k) biases.push_back(k % 5 == 0 ? 0.0f : -200.0f);
    const ModelPlan& plan = model_.plan();
    for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
      const ParameterRecord& record = plan.parameters[p];
      const std::span<float> to = model_.WeightOf(p);
      if (record.role == ParameterRole::kHyperMapGates) {
        std::fill(to.begin(), to.end(), 0.0f);
      } else if (record.role == ParameterRole::kHyperMapBias) {
        std::copy(biases.begin(), biases.end(), to.begin());
      } else if (const int32_t from = plain.model_.plan().ParameterOf(record.sublayer, record.role); from >= 0) {
        std::copy_n(plain.model_.WeightOf(from).begin(), to.size(), to.begin());
      }
    }
  }

  // The stack as segments that begin at `borders` but the last, where it ends.
  Outcome Pass(Stack stack, const std::vector<int32_t>& borders) {
    const int64_t rows = model_.capacity().rows(stack), width = model_.plan().options.d_model;
    OwnedMatrix encoder_output(model_.capacity().source_rows, width, 2, 1.0f),
        d_encoder_output(encoder_output.rows, width);
    const auto rows_at = [&](int32_t border) { return model_.plan().ResidualsBefore(border) * rows; };
    // With room for all streams.
    OwnedMatrix d_residual(model_.plan().Residuals(stack) * rows, width, 3, 1.0f);
    const auto gradient_at = [&](int32_t border) { return d_residual.view().Rows(0, rows_at(border)); };
    const SublayerContext context = model_.Context();
    model_.ClearGradients();
    std::vector<OwnedMatrix> residuals = {OwnedMatrix(rows_at(borders[0]), width, 1, 1.0f)};
    OwnedMatrix second(rows, width), d_second(rows, width, 5, 1.0f);
    const bool has_second = model_.plan().HasSecondStream(stack);
    std::vector<std::unique_ptr<ChunkPart>> segments;
    std::vector<std::vector<std::byte>> saved;
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      segments.push_back(MakeSegment(model_.plan(), borders[i], borders[i + 1], model_.capacity()));
      const ChunkPart& segment = *segments.back();
      saved.emplace_back(segment.saved_bytes());
      OwnedMatrix out(rows_at(borders[i + 1]), width);
      segment.Forward(context, {.x = residuals.back().view(),
                                .encoder_output = encoder_output.view(),
                                .y = out.view(),
                                .second = has_second ? second.view() : Matrix(),
                                .saved = saved.back().data()});
      residuals.push_back(std::move(out));
    }
    if (another_between_) {
      std::vector<std::byte> others(segments[0]->saved_bytes());
      const OwnedMatrix x(rows_at(borders[0]), width, 4, 1.0f);
      OwnedMatrix y(rows_at(borders[1]), width);
      segments[0]->Forward(
          context, {.x = x.view(), .encoder_output = encoder_output.view(), .y = y.view(), .saved = others.data()});
    }
    for (size_t i = segments.size(); i-- > 0;) {
      PartTensors tensors{.x = residuals[i].view(),
                          .encoder_output = encoder_output.view(),
                          .d_second = has_second ? d_second.view() : Matrix(),
                          .saved = saved[i].data(),
                          .d_y = gradient_at(borders[i + 1]),
                          .d_x = gradient_at(borders[i]),
                          .d_encoder_output = d_encoder_output.view()};
      const int32_t steps = segments[i]->steps();
      std::vector<std::vector<std::byte>> pending(steps);
      const auto weight_half = [&](int32_t step) {
        tensors.pending = pending[step].data();
        segments[i]->BackwardWeight(context, tensors, step);
      };
      for (int32_t step = steps - 1; step >= 0; --step) {
        pending[step].assign(segments[i]->pending_bytes(step), std::byte{0xFF});  // NaN
        tensors.pending = pending[step].data();
        segments[i]->BackwardInput(context, tensors, step);
        if (!halves_apart_) weight_half(step);
      }
      if (!halves_apart_) continue;
      std::fill(saved[i].end() - segments[i]->saved_input_bytes(), saved[i].end(), std::byte{0xFF});
      for (int32_t step = 0; step < steps; ++step) weight_half(step);
    }
    d_residual.values.resize(rows_at(borders[0]) * width);
    return {residuals.back().values, second.values, d_residual.values, d_encoder_output.values, model_.AllGradients()};
  }

 protected:
  bool another_between_ = false;  // whether other rows go forward through the first segment before the backward
  bool halves_apart_ = false;     // whether a segment's weight halves run after all its input halves, ascending
  BoundModel model_;
};

class SegmentTest : public Stacks, public ::testing::TestWithParam<ResidualMethod> {
 protected:
  SegmentTest() : Stacks(SmallModel(GetParam(), NarrowShape(kLayers))) {}

  void ExpectSameOutcome(Stack stack, const std::vector<int32_t>& borders, const Outcome& whole) {
    SCOPED_TRACE(absl::StrCat("segments from ", absl::StrJoin(borders, ", ")));
    const Outcome cut = Pass(stack, borders);
    EXPECT_TRUE(SameBits(cut.out, whole.out)) << "output";
    EXPECT_TRUE(SameBits(cut.second, whole.second)) << "second stream";
    EXPECT_TRUE(SameBits(cut.d_x, whole.d_x)) << "gradient of the input";
    EXPECT_TRUE(SameBits(cut.d_encoder_output, whole.d_encoder_output)) << "gradient of the encoder's output";
    EXPECT_TRUE(SameBits(cut.gradients, whole.gradients)) << "gradients of parameters";
  }

  // The stack cut at each place where it may be, and at all of them.
  void ExpectSameBitsWhereverCut(Stack stack) {
    const Range range = RangeOf(stack);
    const Outcome whole = Pass(stack, {range.first, range.last});
    std::vector<int32_t> all = {range.first};
    while (all.back() < range.last) all.push_back(model_.plan().NextCut(all.back() + 1));
    ASSERT_GE(all.size(), kLayers + 1u) << "layers can always be parted";
    for (size_t i = 1; i + 1 < all.size(); ++i) ExpectSameOutcome(stack, {range.first, all[i], range.last}, whole);
    ExpectSameOutcome(stack, all, whole);
  }

  // Each stack as one segment, with `changed` and without.
  void ExpectSameBitsWith(bool& changed) {
    for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
      const Range range = RangeOf(stack);
      const Outcome without = Pass(stack, {range.first, range.last});
      changed = true;
      ExpectSameOutcome(stack, {range.first, range.last}, without);
      changed = false;
    }
  }
};

// Keel without its gain and its norm behind the sum is Pre-LN, up to the norm that ends a stack.
TEST(SegmentIdentity, ANormInFrontOfEachBranchAloneIsPreLn) {
  ModelOptions keel = SmallModel(ResidualMethod::kKeel, NarrowShape(kLayers));
  for (StackMethod* stack : {&keel.encoder, &keel.decoder}) {
    stack->norm = NormPlacement::kNone;
    stack->residual_gain = 1;
  }
  Stacks pre_ln(SmallModel(ResidualMethod::kPreLn, NarrowShape(kLayers))), without(keel);
  for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
    const int32_t first = pre_ln.RangeOf(stack).first, last = first + (stack == Stack::kEncoder ? 4 : 6);  // two layers
    without.TakeWeights(pre_ln, first, last);
    const Outcome expected = pre_ln.Pass(stack, {first, last}), outcome = without.Pass(stack, {first, last});
    EXPECT_TRUE(SameBits(outcome.out, expected.out));
    EXPECT_TRUE(SameBits(outcome.d_x, expected.d_x));
    EXPECT_TRUE(SameBits(outcome.d_encoder_output, expected.d_encoder_output));
  }
}

TEST(SegmentIdentity, FourStreamsWithFixedMapsArePreLn) {
  Stacks pre_ln(SmallModel(ResidualMethod::kPreLn, NarrowShape(kLayers)));
  Stacks streams(SmallModel(ResidualMethod::kMhc, NarrowShape(kLayers)));
  streams.BecomePlain(pre_ln);
  for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
    const auto [first, last] = pre_ln.RangeOf(stack);
    EXPECT_TRUE(SameBits(streams.Pass(stack, {first, last}).out, pre_ln.Pass(stack, {first, last}).out));
  }
}

TEST_P(SegmentTest, AnEncoderHasTheSameBitsWhereverItIsCut) { ExpectSameBitsWhereverCut(Stack::kEncoder); }

TEST_P(SegmentTest, ADecoderHasTheSameBitsWhereverItIsCut) { ExpectSameBitsWhereverCut(Stack::kDecoder); }

// Other micro-batches' forwards run between a micro-batch's two halves: what it keeps is enough.
TEST_P(SegmentTest, BackwardReadsNothingThatAForwardLeavesInTheWorkspace) { ExpectSameBitsWith(another_between_); }

// What BackwardInput leaves in `pending`, with x and the first part of `saved`, is all that BackwardWeight reads.
TEST_P(SegmentTest, WeightHalvesMayRunAfterAllInputHalvesInAnyOrder) { ExpectSameBitsWith(halves_apart_); }

INSTANTIATE_TEST_SUITE_P(Methods, SegmentTest, ::testing::ValuesIn(MethodsWithSegmentsOfSeveralLayers()),
                         [](const auto& info) { return ResidualMethodName(info.param); });

}  // namespace
}  // namespace hadal::testing
