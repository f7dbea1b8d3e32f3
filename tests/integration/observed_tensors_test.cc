// What observers are shown, against double precision: the residual connection and LayerNorm, forward and backward, from
// the shown tensors alone; and where the search in a failed step ends.
#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/instruments/failed_step_search.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/step_batches.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kVocabulary = 61;
constexpr int64_t kWidth = 32;
constexpr absl::Duration kTimeout = absl::Seconds(60);

using Values = std::vector<double>;

// Copies of the tensors of micro-batch 0.
class Copies : public DepthObserver {
 public:
  void Observe(const Stream&, int32_t micro_batch, const DepthObservation& o) override {
    if (micro_batch != 0) return;
    EXPECT_EQ(tensors_.count({o.sublayer, o.tensor}), 0u) << "shown twice: " << o.sublayer;
    Values& copy = tensors_[{o.sublayer, o.tensor}];
    const ConstMatrix values = o.values.floats(), before = o.before.floats();
    for (int64_t i = 0; i < values.rows * values.columns; ++i) copy.push_back(double{values.data[i]} / o.factor);
    if (!before.empty()) before_[o.sublayer].assign(before.data, before.data + before.rows * before.columns);
  }
  const Values& At(int32_t sublayer, DepthTensor tensor) const { return tensors_.at({sublayer, tensor}); }
  const Values& Before(int32_t sublayer) const { return before_.at(sublayer); }
  bool Has(int32_t sublayer, DepthTensor tensor) const { return tensors_.count({sublayer, tensor}) > 0; }

 private:
  std::map<std::pair<int32_t, DepthTensor>, Values> tensors_;
  std::map<int32_t, Values> before_;
};

struct OneStep {
  Engine& engine;
  Communicator& communicator;
  const StepBatches& batches;
  StepScalars scalars;
  UpdateSettings update;
};

// A 5L-7L model without dropout and its first batch, laid over `ranks` ranks; `body` runs on each.
void OnRanks(ResidualMethod method, int ranks, int recompute_every,
             const std::function<absl::Status(const OneStep&)>& body) {
  ModelOptions model = SmallModel(method, {.d_model = kWidth, .vocabulary = kVocabulary});
  model.dropout = model.attention_dropout = model.activation_dropout = 0;
  model.sharing = EmbeddingSharing::kNone;
  const ModelPlan plan = ModelPlan::Make(model);
  const BatchOptions batch{.micro_batches = 2, .source_tokens = 48, .target_tokens = 48};
  const PipelineLayout pipeline = MakePipelineLayout(plan, batch, {.recompute_every = recompute_every}, ranks).value();
  const Corpus corpus = RandomCorpus(100, 12, kVocabulary, 3);
  SamplingOrder order =
      SamplingOrder::Create(corpus, {.seed = 1, .capacity = {48, 48}, .micro_batches_per_step = 2}).value();
  const StepBatches batches = NextStep(order);
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    PrepareComputeThread();
    const Stream stream = Stream::Cpu(1);
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, TrainingEngine(plan, pipeline, communicator, stream));
    HADAL_RETURN_IF_ERROR(
        InitializeParameters(pipeline, engine->stage().parameters(), 1, stream, engine->grid().pipeline(), kTimeout));
    return body({*engine,
                 communicator,
                 batches,
                 {.seed = 1, .gradient_scale = 1.0f / static_cast<float>(batches.target_tokens)},
                 {.learning_rate = 1e-3}});
  });
  ASSERT_TRUE(status.ok()) << status;
}

void ExpectNear(const Values& actual, const Values& expected, const char* what, int32_t sublayer) {
  ASSERT_EQ(actual.size(), expected.size()) << what << " of sublayer " << sublayer;
  double error = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_GT(size, 0) << what << " of sublayer " << sublayer;
  EXPECT_LE(std::sqrt(error), 2e-5 * std::sqrt(size)) << what << " of sublayer " << sublayer;
}

// LayerNorm of rows of kWidth, and ∂L/∂x from ∂L/∂y. Its weights are those before the first update: 1 and 0.
void Norm(const Values& x, const Values& dy, Values& y, Values& dx) {
  for (size_t first = 0; first < x.size(); first += kWidth) {
    double mean = 0, variance = 0, mean_g = 0, mean_gh = 0;
    for (int64_t i = 0; i < kWidth; ++i) mean += x[first + i] / kWidth;
    for (int64_t i = 0; i < kWidth; ++i) variance += (x[first + i] - mean) * (x[first + i] - mean) / kWidth;
    const double q = 1 / std::sqrt(variance + 1e-5);
    for (int64_t i = 0; i < kWidth; ++i) {
      const double h = (x[first + i] - mean) * q, g = dy[first + i];
      y.push_back(h);
      mean_g += g / kWidth;
      mean_gh += g * h / kWidth;
    }
    for (int64_t i = 0; i < kWidth; ++i) {
      const double h = (x[first + i] - mean) * q;
      dx.push_back(q * (dy[first + i] - mean_g - h * mean_gh));
    }
  }
}

// s = r·x + b·(F(x) + bias), no dropout.
Values Sum(const OneStep& step, int32_t sublayer, const Copies& seen) {
  const ModelPlan& plan = step.engine.stage().plan();
  const SublayerRecord& record = plan.sublayers[sublayer];
  const bool feeds_forward = record.kind == SublayerKind::kFeedForward;
  const ConstVector bias = step.engine.stage().parameters().WeightVector(
      plan.ParameterOf(sublayer, feeds_forward ? ParameterRole::kContractionBias : ParameterRole::kOutputBias));
  Values sum = seen.Before(sublayer);
  const Values& branch = seen.At(sublayer, DepthTensor::kBranch);
  const double b = BranchGain(record, 1);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = record.residual_gain * sum[i] + b * (branch[i] + bias[i % kWidth]);
  return sum;
}

class ObservedTensors : public ::testing::TestWithParam<int> {  // recompute_every
 protected:
  // Calls `check` for each sublayer of the stacks, after a step on one rank.
  static void AfterAStep(ResidualMethod method,
                         const std::function<void(const ModelPlan&, int32_t s, const Copies& seen)>& check) {
    OnRanks(method, 1, GetParam(), [&](const OneStep& step) -> absl::Status {
      Copies seen;
      step.engine.Observe(&seen);
      HADAL_RETURN_IF_ERROR(step.engine.TrainingStep(step.batches.micro_batches, step.scalars, step.update).status());
      const ModelPlan& plan = step.engine.stage().plan();
      for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
        if (plan.sublayers[s].layer >= 0) check(plan, s, seen);
      }
      return absl::OkStatus();
    });
  }
};

TEST_P(ObservedTensors, PostNorm) {
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kResidualDual}) {
    AfterAStep(method, [](const ModelPlan& plan, int32_t s, const Copies& seen) {
      Values output, gradient;
      Norm(seen.At(s, DepthTensor::kNormInput), seen.At(s, DepthTensor::kNormOutputGradient), output, gradient);
      ExpectNear(seen.At(s, DepthTensor::kOutput), output, "output", s);
      const bool second_stream = plan.sublayers[s].second_gain != 0;
      if (!second_stream || !plan.begins_stack(s)) {
        ExpectNear(seen.At(s, DepthTensor::kNormInputGradient), gradient, "gradient of the norm's input", s);
      } else {
        EXPECT_FALSE(seen.Has(s, DepthTensor::kNormInputGradient)) << "the second stream's is added to it";
      }
      ExpectNear(seen.At(s, DepthTensor::kOutputGradient), seen.At(s, DepthTensor::kNormOutputGradient),
                 "gradient of the output", s);
      if (second_stream) return;  // the branch has another reader
      Values branch_gradient = gradient;
      for (double& g : branch_gradient) g *= BranchGain(plan.sublayers[s], 1);
      ExpectNear(seen.At(s, DepthTensor::kBranchGradient), branch_gradient, "gradient of F(x)", s);
    });
  }
}

TEST_P(ObservedTensors, SumsBeforeAnyUpdate) {
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kResidualDual}) {
    OnRanks(method, 1, GetParam(), [](const OneStep& step) -> absl::Status {
      Copies seen;
      step.engine.Observe(&seen);
      UpdateSettings update = step.update;
      update.apply = false;
      HADAL_ASSIGN_OR_RETURN(const StepResult result,
                             step.engine.TrainingStep(step.batches.micro_batches, step.scalars, update));
      EXPECT_FALSE(result.applied);
      const ModelPlan& plan = step.engine.stage().plan();
      for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
        if (plan.sublayers[s].layer < 0) continue;
        const bool pre = plan.sublayers[s].norm == NormPlacement::kPre;
        ExpectNear(seen.At(s, pre ? DepthTensor::kOutput : DepthTensor::kNormInput), Sum(step, s, seen), "sum", s);
        ExpectNear(seen.Before(s), seen.At(s - 1, DepthTensor::kOutput), "stream in front", s);
        EXPECT_EQ(seen.Has(s, DepthTensor::kHidden), plan.sublayers[s].kind == SublayerKind::kFeedForward);
        const float second_gain = plan.sublayers[s].second_gain;
        EXPECT_EQ(seen.Has(s, DepthTensor::kSecondStream), second_gain != 0);
        if (second_gain == 0) continue;
        Values second = Sum(step, s, seen);  // x + F(x)
        for (size_t i = 0; i < second.size(); ++i) {
          const double in_front =
              plan.begins_stack(s) ? second_gain * seen.Before(s)[i] : seen.At(s - 1, DepthTensor::kSecondStream)[i];
          second[i] = in_front + second_gain * (second[i] - seen.Before(s)[i]);
        }
        ExpectNear(seen.At(s, DepthTensor::kSecondStream), second, "second stream", s);
      }
      return absl::OkStatus();
    });
  }
}

// Outputs and their gradients are all streams of a row; a stack begins with copies of the embedding's output.
TEST_P(ObservedTensors, SeveralResiduals) {
  AfterAStep(ResidualMethod::kMhc, [](const ModelPlan& plan, int32_t s, const Copies& seen) {
    const size_t size = seen.At(s, DepthTensor::kBranch).size();
    EXPECT_EQ(seen.At(s, DepthTensor::kOutput).size(), 4 * size);
    EXPECT_EQ(seen.At(s, DepthTensor::kOutputGradient).size(), 4 * size);
    EXPECT_EQ(seen.At(s, DepthTensor::kNormInput).size(), size);
    Values normed, gradient;
    Norm(seen.At(s, DepthTensor::kNormInput), seen.At(s, DepthTensor::kNormOutputGradient), normed, gradient);
    ExpectNear(seen.At(s, DepthTensor::kNormInputGradient), gradient, "gradient of the norm's input", s);
    const Values& in_front = seen.At(s - 1, DepthTensor::kOutput);
    if (!plan.begins_stack(s)) return ExpectNear(seen.Before(s), in_front, "streams in front", s);
    Values copies;
    for (size_t row = 0; row < in_front.size(); row += kWidth) {
      for (int stream = 0; stream < 4; ++stream) {
        copies.insert(copies.end(), in_front.begin() + row, in_front.begin() + row + kWidth);
      }
    }
    ExpectNear(seen.Before(s), copies, "copies in front", s);
  });
}

// ∂L/∂x_k = r·∂L/∂x_{k+1} + the norm's share, so that the observed gradients fix each other. Where layers are combined,
// x_k of a layer's first sublayer is the combination.
TEST_P(ObservedTensors, PreNormGradients) {
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDlclPre}) {
    AfterAStep(method, [](const ModelPlan& plan, int32_t s, const Copies& seen) {
      Values normed, expected;
      Norm(seen.At(s, DepthTensor::kNormInput), seen.At(s, DepthTensor::kNormOutputGradient), normed, expected);
      const Values& behind = seen.At(s, DepthTensor::kOutputGradient);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += plan.sublayers[s].residual_gain * behind[i];
      const bool of_layers =
          plan.Combines(plan.sublayers[s].stack) && plan.sublayers[s].kind == SublayerKind::kSelfAttention;
      ExpectNear(of_layers ? seen.At(s, DepthTensor::kNormInputGradient) : seen.At(s - 1, DepthTensor::kOutputGradient),
                 expected, "gradient in front", s);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(CheckpointEvery, ObservedTensors, ::testing::Values(0, 3),
                         ::testing::PrintToStringParamName());

class FailedStepSearch : public ::testing::TestWithParam<int> {  // ranks
 protected:
  // Where the search ends once `spoil` has been at the weights and the step; every rank must say the same.
  static std::string Locate(const std::function<void(const ParameterStore&, OneStep&)>& spoil) {
    std::vector<std::string> places(GetParam());
    OnRanks(ResidualMethod::kDeepNorm, GetParam(), 0, [&](const OneStep& step) -> absl::Status {
      OneStep failed = step;
      spoil(step.engine.stage().parameters(), failed);
      const std::vector<float> before = Weights(step.engine.stage().parameters());
      Collectives collectives(step.communicator, kTimeout);
      HADAL_ASSIGN_OR_RETURN(
          places[step.communicator.rank()],
          LocateFailure(step.engine, step.batches.micro_batches, failed.scalars, failed.update, collectives));
      const std::vector<float> after = Weights(step.engine.stage().parameters());
      EXPECT_EQ(std::memcmp(after.data(), before.data(), before.size() * sizeof(float)), 0) << "it applies no update";
      return absl::OkStatus();
    });
    for (const std::string& place : places) EXPECT_EQ(place, places[0]);
    return places[0];
  }

  static std::vector<float> Weights(const ParameterStore& parameters) {
    std::vector<float> all;
    for (const int32_t parameter : parameters.owned()) {
      const Vector weight = parameters.WeightVector(parameter);
      all.insert(all.end(), weight.data, weight.data + weight.size);
    }
    return all;
  }

  static void Spoil(const ParameterStore& parameters, const std::string& name, float value) {
    const ModelPlan& plan = parameters.plan();
    for (size_t p = 0; p < plan.parameters.size(); ++p) {
      const auto parameter = static_cast<int32_t>(p);
      if (plan.ParameterName(parameter) == name && parameters.Holds(parameter)) {
        parameters.WeightVector(parameter)[0] = value;
      }
    }
  }
  static std::string Spoiled(const std::string& name, float value) {
    return Locate([&](const ParameterStore& p, OneStep&) { Spoil(p, name, value); });
  }
};

// On 3 ranks the decoder's last finite tensor may be another rank's: micro-batch, place and size must be the same.
TEST_P(FailedStepSearch, NamesTheTensorOfTheForwardPassTheOneInFrontOfItAndTheWeight) {
  EXPECT_EQ(
      Spoiled("decoder.layers.4.fc1.weight", NAN),
      "first number that is not finite: forward, decoder layer 4 feed-forward, hidden layer (micro-batch 0); last "
      "finite tensor: forward, decoder layer 4 cross-attention, output (root mean square 1); the weights of "
      "decoder.layers.4.fc1.weight (decoder layer 4 feed-forward) were not finite before the step: an update made "
      "them so");
  EXPECT_THAT(Locate([](const ParameterStore& p, OneStep&) {
                Spoil(p, "encoder.layers.1.self_attn.out_proj.bias", NAN);
                Spoil(p, "decoder.layers.6.fc1.weight", NAN);
              }),
              AllOf(HasSubstr("forward, encoder layer 1 self-attention, input of its LayerNorm (micro-batch 0); "),
                    HasSubstr("tensor: forward, encoder layer 1 self-attention, F(x) (root mean square "),
                    HasSubstr("the weights of encoder.layers.1.self_attn.out_proj.bias ")));
  EXPECT_THAT(Spoiled("decoder.layers.3.encoder_attn_layer_norm.weight", INFINITY),
              HasSubstr("forward, decoder layer 3 cross-attention, output (micro-batch 0)"));
}

// Every sublayer in turn, so that every border of stages has been between the two tensors.
TEST_P(FailedStepSearch, SaysTheSameForEveryNumberOfRanks) {
  for (int layer = 0; layer < 7; ++layer) {
    const std::string at = absl::StrCat("decoder layer ", layer);
    EXPECT_THAT(Spoiled(absl::StrCat("decoder.layers.", layer, ".self_attn.v_proj.weight"), NAN),
                AllOf(HasSubstr(absl::StrCat("forward, ", at, " self-attention, F(x) (micro-batch 0); last finite ")),
                      HasSubstr(layer == 0 ? "tensor: forward, target embedding, output (root mean square "
                                           : absl::StrCat("tensor: forward, decoder layer ", layer - 1,
                                                          " feed-forward, output (root mean square 1); "))));
  }
}

// A word of the second micro-batch alone: nothing is in front of its embedding.
TEST_P(FailedStepSearch, LooksInFrontWithinTheMicroBatch) {
  EXPECT_THAT(Locate([](const ParameterStore& parameters, OneStep& step) {
                const std::vector<int32_t>& first = step.batches.micro_batches[0].source;
                const std::vector<int32_t>& second = step.batches.micro_batches[1].source;
                const auto word = std::ranges::find_if(
                    second, [&](int32_t token) { return std::ranges::find(first, token) == first.end(); });
                ASSERT_NE(word, second.end());
                const int32_t table = parameters.plan().sublayers[parameters.plan().source_embedding()].table;
                if (parameters.Holds(table)) parameters.Weight(table).row(*word)[0] = NAN;
              }),
              AllOf(HasSubstr("forward, source embedding, output (micro-batch 1)"), Not(HasSubstr("last finite"))));
}

TEST_P(FailedStepSearch, TellsTheHeadFromTheLayerInFrontOfIt) {
  EXPECT_THAT(
      Spoiled("decoder.output_projection.weight", NAN),
      HasSubstr("forward, output head, logits or loss (micro-batch 0); last finite tensor: forward, output head, "
                "input (root mean square 1); the weights of decoder.output_projection.weight"));
}

TEST_P(FailedStepSearch, NamesTheTensorOfTheBackwardPass) {
  EXPECT_EQ(Locate([](const ParameterStore&, OneStep& step) { step.scalars.gradient_scale = INFINITY; }),
            "first number that is not finite: backward, decoder layer 6 feed-forward, gradient of its output "
            "(micro-batch 0); last finite tensor: forward, output head, input (root mean square 1)");
}

TEST_P(FailedStepSearch, OfALossSpikeNamesWhatMultipliesTheResidualStream) {
  EXPECT_THAT(Locate([](const ParameterStore& p, OneStep& step) {
                Spoil(p, "encoder.layers.1.self_attn_layer_norm.weight", 1e4);
                step.update.highest_loss = 0;
              }),
              AllOf(HasSubstr("the residual stream grows most in encoder layer 1 self-attention (micro-batch "),
                    HasSubstr("): root mean square 1 before it, ")));
  EXPECT_THAT(Locate([](const ParameterStore&, OneStep& step) { step.update.highest_loss = 0; }),
              HasSubstr("no sublayer multiplies the residual stream by 10 or more"));
}

TEST_P(FailedStepSearch, AFiniteStepIsTheMachinesFault) {
  EXPECT_THAT(Locate([](const ParameterStore&, OneStep&) {}), HasSubstr("suspect the machine"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, FailedStepSearch, ::testing::Values(1, 3), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hadal::testing
