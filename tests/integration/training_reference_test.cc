// A training run equals a recipe in double precision: learning rate, loss scale, gradient norm, clipping, Adam, weight
// decay, skipped steps, counters and metrics. Most other tests compare runs with runs.
//
//   g = Σ over the step's micro-batches of the gradient of their summed loss / target tokens of the step
//   g' = g · min(1, clip / |g|);  m = b1·m + (1 − b1)·g';  v = b2·v + (1 − b2)·g'²
//   w −= rate · decay · w;  w −= rate · sqrt(1 − b2^t) / (1 − b1^t) · m / (sqrt(v) + eps)      (fairseq optim/adam.py)
// Muon's matrices (of attention and feed-forward): m = μ·m + (1 − μ)·g';  u = (1 − μ)·g' + μ·m;  w −= rate · decay · w;
//   w −= rate · scale · orthogonalised u                                            (torch.optim.Muon of PyTorch 2.15)
// Of a model m times wider than its base the weights of the tables and of the decoder's last norm are here muP's,
// sqrt(m) times hadal's: w and its rate do not depend on m; sublayers' matrices have rate / m, decay · m and eps / m
// (CompleteP, table 1).
// t counts applied updates, this one included; the rate is fairseq's after t − 1 updates.
// The gradient of a micro-batch comes from a bare engine on one rank, without loss scale and recomputation, at the
// recipe's weights. That it is the slope of the loss is shown by model_gradient_test and tests/parity.
#include <cmath>
#include <optional>

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/muon_reference.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61, kRows = 24, kMicroBatches = 3;
constexpr int64_t kSteps = 10;
constexpr int64_t kBadStep = 2;  // its gradient is not finite; within the warm-up, so that every later rate tells
constexpr absl::Duration kTimeout = absl::Seconds(60);

using Values = std::vector<std::vector<double>>;  // [parameters]

struct Case {
  std::string name;
  ResidualMethod method;
  RateSchedule schedule;
  PipelineOptions pipeline;
  int ranks;
  int base_width = 0;
  std::optional<MuonScale> muon = std::nullopt;
};

TrainOptions OptionsOf(const Case& c) {
  TrainOptions options;
  options.seed = 5;
  options.sampling_temperature = {5};
  options.model = SmallModel(
      c.method, {.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .heads = 2, .vocabulary = kVocabulary});
  options.model.base_width = c.base_width;
  options.batch = {.micro_batches = kMicroBatches, .source_tokens = kRows, .target_tokens = kRows};
  options.pipeline = c.pipeline;
  options.optimizer = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1, .clip_norm = 1};
  if (c.muon) {
    options.optimizer.kind = OptimizerKind::kMuon;
    options.optimizer.muon = {.momentum = 0.8, .scale = *c.muon, .rate_factor = 2};
  }
  options.rate = {.schedule = c.schedule,
                  .peak = 1e-2,
                  .warmup_updates = 3,
                  .warmup_initial_rate = 1e-3,
                  .end_rate = 1e-3,
                  .power = 2};
  options.stop.steps = kSteps;
  options.checkpoint.save_at_end = false;
  options.depth.enabled = false;
  return options;
}

// After `t` updates of a run of kSteps.
double Rate(const RateOptions& rate, double t) {
  const double warmup = rate.warmup_updates;
  if (rate.schedule == RateSchedule::kInverseSqrt) {
    if (t < warmup) return rate.warmup_initial_rate + t * (rate.peak - rate.warmup_initial_rate) / warmup;
    return rate.peak * std::sqrt(warmup) / std::sqrt(t);
  }
  if (t < warmup) return rate.peak * t / warmup;
  return rate.end_rate + (rate.peak - rate.end_rate) * std::pow((kSteps - t) / (kSteps - warmup), rate.power);
}

class StepSink final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { steps.push_back(metrics); }
  std::vector<StepMetrics> steps;
};

struct Outcome {
  std::vector<StepMetrics> steps;
  TrainingProgress progress;
  Values weights;  // as their owners hold them
};

// Called when a rank votes: the step's gradients are summed, and their norm is not yet known.
void SpoilGradient(Trainer& trainer) {
  if (trainer.progress().step != kBadStep) return;
  trainer.engine().state().owned()[0].gradient[0] = std::numeric_limits<float>::quiet_NaN();
}

Outcome Train(TrainOptions options, const ModelPlan& plan, const Corpus& corpus, int ranks) {
  Outcome outcome;
  outcome.weights.resize(plan.parameters.size());
  const TemporaryDirectory directory;
  options.run_directory = directory.path();
  StepSink sink;
  std::mutex mutex;
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    Trainer* running = nullptr;
    const TrainingSurroundings surroundings{
        .communicator = communicator, .stream = Stream::Cpu(1), .train = corpus, .sink = sink, .stop_requested = [&] {
          SpoilGradient(*running);
          return false;
        }};
    return WithTrainer(options, surroundings, [&](Trainer& trainer) -> absl::Status {
      running = &trainer;
      HADAL_ASSIGN_OR_RETURN(const TrainingOutcome result, trainer.Run());
      const std::lock_guard lock(mutex);
      if (communicator.rank() == 0) outcome.progress = result.progress;
      for (const StateSlice& slice : trainer.engine().state().owned()) {
        outcome.weights[slice.parameter].assign(slice.weight.data, slice.weight.data + slice.weight.size);
      }
      return absl::OkStatus();
    });
  });
  EXPECT_TRUE(status.ok()) << status;
  outcome.steps = sink.steps;
  return outcome;
}

// The gradients of single micro-batches, at any weights.
class MicroBatchGradients {
 public:
  MicroBatchGradients(const TrainOptions& options, const ModelPlan& plan)
      : plan_(plan),
        pipeline_(MakePipelineLayout(plan, {.micro_batches = 1, .source_tokens = kRows, .target_tokens = kRows}, {},
                                     /*ranks=*/1)
                      .value()) {
    PrepareComputeThread();
    const Stream stream = Stream::Cpu(1);
    Communicator& rank = world_.communicator(0);
    engine_ = TrainingEngine(plan, pipeline_, rank, stream).value();
    EXPECT_TRUE(InitializeParameters(pipeline_, parameters(), options.seed, stream, rank, kTimeout).ok());
  }

  Values FirstWeights() const {
    Values values;
    for (size_t p = 0; p < plan_.parameters.size(); ++p) {
      const Vector weight = parameters().WeightVector(static_cast<int32_t>(p));
      values.emplace_back(weight.data, weight.data + weight.size);
    }
    return values;
  }
  void SetWeights(const Values& values) {
    for (size_t p = 0; p < values.size(); ++p) {
      const Vector weight = parameters().WeightVector(static_cast<int32_t>(p));
      for (int64_t i = 0; i < weight.size; ++i) weight[i] = static_cast<float>(values[p][i]);
    }
    EXPECT_TRUE(engine_->DistributeWeights().ok());
  }
  // Adds the gradient of the micro-batch's summed loss to `sum`; returns its losses.
  LossSums Add(const PackedBatch& batch, const StepScalars& scalars, Values& sum) {
    const StepResult result = engine_->TrainingStep({&batch, 1}, scalars, {.apply = false}).value();
    for (const StateSlice& slice : engine_->state().owned()) {
      for (int64_t i = 0; i < slice.elements; ++i) sum[slice.parameter][i] += slice.gradient[i];
    }
    return result.gradient.loss;
  }

 private:
  const ParameterStore& parameters() const { return engine_->stage().parameters(); }

  const ModelPlan& plan_;
  const PipelineLayout pipeline_;
  InProcessWorld world_{1};
  std::unique_ptr<Engine> engine_;
};

Values Zeros(const Values& like) {
  Values zeros;
  for (const std::vector<double>& values : like) zeros.emplace_back(values.size(), 0.0);
  return zeros;
}

// Compares the metrics of each step with its own.
class Recipe {
 public:
  Recipe(const TrainOptions& options, const ModelPlan& plan)
      : options_(options),
        plan_(plan),
        gradients_(options, plan),
        weights_(gradients_.FirstWeights()),
        first_(Zeros(weights_)),
        second_(Zeros(weights_)) {}

  void Step(int64_t step, const StepBatches& batches, const StepMetrics& metrics) {
    const double rate = Rate(options_.rate, static_cast<double>(updates_));
    int64_t tokens = 0;
    for (const PackedBatch& batch : batches.micro_batches) tokens += static_cast<int64_t>(batch.target.size());
    target_tokens_ += tokens;
    EXPECT_EQ(metrics.step, step + 1);
    EXPECT_EQ(metrics.total_steps, kSteps);
    EXPECT_EQ(metrics.target_tokens, tokens);
    EXPECT_NEAR(metrics.learning_rate, rate, 1e-12);
    EXPECT_EQ(metrics.epoch, batches.epochs_done);
    EXPECT_EQ(metrics.skipped, step == kBadStep);
    Values gradient = Gradient(step, batches, tokens, metrics);
    if (step == kBadStep) {
      EXPECT_FALSE(std::isfinite(metrics.gradient_norm));
    } else {
      Clip(metrics, gradient);
      Apply(rate, gradient);
    }
    EXPECT_EQ(metrics.update, updates_);
  }

  const Values& weights() const { return weights_; }
  int64_t updates() const { return updates_; }
  int64_t target_tokens() const { return target_tokens_; }
  int clipped() const { return clipped_; }

 private:
  // Of the mean loss.
  Values Gradient(int64_t step, const StepBatches& batches, int64_t tokens, const StepMetrics& metrics) {
    Values gradient = Zeros(weights_);
    gradients_.SetWeights(weights_);
    double loss = 0, nll = 0;
    for (const PackedBatch& batch : batches.micro_batches) {
      const LossSums sums = gradients_.Add(
          batch, {.seed = options_.seed, .step = step, .update = updates_ + 1, .training = true, .gradient_scale = 1},
          gradient);
      loss += sums.loss / static_cast<double>(tokens);
      nll += sums.nll / static_cast<double>(tokens);
    }
    EXPECT_NEAR(metrics.loss, loss, 1e-5);
    EXPECT_NEAR(metrics.nll, nll, 1e-5);
    EXPECT_NEAR(metrics.perplexity, std::exp(nll), 1e-5 * std::exp(nll));
    for (std::vector<double>& values : gradient) {
      for (double& g : values) g /= static_cast<double>(tokens);
    }
    return gradient;
  }

  void Clip(const StepMetrics& metrics, Values& gradient) {
    double squares = 0;
    std::vector<double> sublayer_squares(plan_.sublayers.size(), 0);
    for (size_t p = 0; p < gradient.size(); ++p) {
      for (const double g : gradient[p]) {
        squares += g * g;
        sublayer_squares[plan_.parameters[p].sublayer] += g * g;
      }
    }
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(metrics.gradient_norm, norm, 1e-4 * norm);
    size_t layer = 0;
    for (size_t s = 0; s < plan_.sublayers.size(); ++s) {
      if (plan_.sublayers[s].layer < 0) continue;
      EXPECT_NEAR(metrics.depth_gradient_norms.at(layer++), std::sqrt(sublayer_squares[s]), 1e-4 * norm) << s;
    }
    EXPECT_EQ(layer, metrics.depth_gradient_norms.size());
    if (norm <= options_.optimizer.clip_norm) return;
    ++clipped_;
    for (std::vector<double>& values : gradient) {
      for (double& g : values) g *= options_.optimizer.clip_norm / norm;
    }
  }

  void Apply(double rate, const Values& gradient) {
    const auto [kind, b1, b2, epsilon, weight_decay, clip, decays_vectors, muon] = options_.optimizer;
    const auto t = static_cast<double>(++updates_);
    const double step_size = rate * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t));
    for (size_t p = 0; p < gradient.size(); ++p) {
      const ParameterRecord& parameter = plan_.parameters[p];
      const SublayerRecord& sublayer = plan_.sublayers[parameter.sublayer];
      const StackMethod& stack = sublayer.stack == Stack::kEncoder ? plan_.options.encoder : plan_.options.decoder;
      const bool matrix = sublayer.layer >= 0 && !parameter.is_vector();
      const bool closes_decoder = plan_.ParameterName(static_cast<int32_t>(p)).starts_with("decoder.layer_norm.");
      if (options_.optimizer.kind == OptimizerKind::kMuon && matrix) {
        ApplyMuon(rate, parameter, gradient[p], first_[p], weights_[p]);
        continue;
      }
      const double width = plan_.options.width_multiplier(), of_matrix = matrix ? width : 1;
      const double unit = parameter.role == ParameterRole::kEmbedding || closes_decoder ? std::sqrt(width) : 1;
      const double eps = epsilon * (matrix ? stack.adam_epsilon_factor / width : 1 / unit);
      const double decay = parameter.is_vector() && !decays_vectors ? 0 : weight_decay * of_matrix;
      for (size_t i = 0; i < gradient[p].size(); ++i) {
        const double g = gradient[p][i] / unit;
        double &m = first_[p][i], &v = second_[p][i], w = weights_[p][i] * unit;
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        w -= rate / of_matrix * decay * w;
        w -= step_size / of_matrix * m / (std::sqrt(v) + eps);
        weights_[p][i] = w / unit;
      }
    }
  }

  void ApplyMuon(double rate, const ParameterRecord& matrix, const std::vector<double>& gradient,
                 std::vector<double>& momentum, std::vector<double>& weights) const {
    const MuonOptions& muon = options_.optimizer.muon;
    std::vector<double> direction;
    for (size_t i = 0; i < gradient.size(); ++i) {
      momentum[i] = muon.momentum * momentum[i] + (1 - muon.momentum) * gradient[i];
      direction.push_back((1 - muon.momentum) * gradient[i] + muon.momentum * momentum[i]);
    }
    OrthogonalizeReference(direction, matrix.rows, matrix.columns, muon.iteration);
    const auto rows = static_cast<double>(matrix.rows), columns = static_cast<double>(matrix.columns);
    const double scale = muon.scale == MuonScale::kOriginal
                             ? std::sqrt(std::max(1.0, rows / columns))
                             : 0.2 * std::sqrt(std::max(rows, columns) / plan_.options.width_multiplier());
    const double of_muon = rate * muon.rate_factor;
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] -= of_muon * options_.optimizer.weight_decay * weights[i];
      weights[i] -= of_muon * scale * direction[i];
    }
  }

  const TrainOptions& options_;
  const ModelPlan& plan_;
  MicroBatchGradients gradients_;
  Values weights_, first_, second_;
  int64_t updates_ = 0, target_tokens_ = 0;
  int clipped_ = 0;
};

class TrainingReference : public ::testing::TestWithParam<Case> {};

TEST_P(TrainingReference, ARunIsTheRecipe) {
  const TrainOptions options = OptionsOf(GetParam());
  const ModelPlan plan = ModelPlan::Make(options.model);
  const Corpus corpus = RandomCorpus(25, 9, kVocabulary, 5);
  const Outcome run = Train(options, plan, corpus, GetParam().ranks);
  ASSERT_EQ(std::ssize(run.steps), kSteps);

  Recipe recipe(options, plan);
  SamplingOrder order = SamplingOrder::Create(corpus, {.seed = options.seed,
                                                       .capacity = {kRows, kRows, options.model.max_positions},
                                                       .micro_batches_per_step = kMicroBatches,
                                                       .temperatures = options.sampling_temperature})
                            .value();
  int64_t ragged = 0, samples = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(::testing::Message() << "step " << step);
    StepBatches batches;
    ASSERT_TRUE(order.Next(step, batches).ok());
    const std::vector<PackedBatch>& list = batches.micro_batches;
    ragged += list[0].target.size() * list.size() != static_cast<size_t>(batches.target_tokens);
    for (const PackedBatch& batch : list) samples += batch.sentences();
    recipe.Step(step, batches, run.steps[step]);
  }
  EXPECT_GT(ragged, kSteps / 2) << "the first micro-batch does not show the scale";
  EXPECT_GT(recipe.clipped(), 1);
  EXPECT_LT(recipe.clipped(), kSteps - 2) << "not all steps are clipped";
  EXPECT_EQ(run.progress.step, kSteps);
  EXPECT_EQ(run.progress.update, recipe.updates());
  EXPECT_EQ(run.progress.target_tokens_seen, recipe.target_tokens());
  EXPECT_EQ(run.progress.samples_seen, samples);
  EXPECT_EQ(run.progress.seed, options.seed);
  EXPECT_EQ(run.progress.place, order.place());

  double furthest = 0;
  const Values start = MicroBatchGradients(options, plan).FirstWeights();
  for (size_t p = 0; p < start.size(); ++p) {
    ASSERT_EQ(run.weights[p].size(), start[p].size());
    for (size_t i = 0; i < start[p].size(); ++i) {
      ASSERT_NEAR(run.weights[p][i], recipe.weights()[p][i], 2e-6) << plan.ParameterName(static_cast<int32_t>(p));
      furthest = std::max(furthest, std::abs(run.weights[p][i] - start[p][i]));
    }
  }
  EXPECT_GT(furthest, 0.02) << "the run has moved the weights";
}

// Of text, which has no frames to mask.
TEST(TrainingData, TheSamplerRefusesMasksThatItCannotMake) {
  TrainOptions options = OptionsOf({});
  options.spec_augment.time_masks = 1;
  const Corpus corpus = RandomCorpus(25, 9, kVocabulary, 5);
  StepSink sink;
  InProcessWorld world(1);
  const TrainingSurroundings surroundings{
      .communicator = world.communicator(0), .stream = Stream::Cpu(1), .train = corpus, .sink = sink};
  const absl::Status status = WithTrainer(options, surroundings, [](Trainer&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TrainingReference,
    ::testing::Values(
        Case{"TwoStages", ResidualMethod::kDeepNorm, RateSchedule::kInverseSqrt, {}, 2},
        // Two stages of the decoder give the encoder's output a gradient; branches grow with the updates.
        Case{"FourStagesRecomputed", ResidualMethod::kBranchNorm, RateSchedule::kPolynomial, {.recompute_every = 2}, 4},
        Case{"TwoReplicas", ResidualMethod::kPreLn, RateSchedule::kPolynomial, {.replicas = 2}, 4},
        Case{"ReadersOfBlocks", ResidualMethod::kAttnRes, RateSchedule::kInverseSqrt, {.replicas = 2}, 4},
        Case{"TwiceTheBaseWidth", ResidualMethod::kCompleteP, RateSchedule::kInverseSqrt, {}, 2, 8},
        Case{"MuonOnTwoReplicas",
             ResidualMethod::kPreLn,
             RateSchedule::kPolynomial,
             {.replicas = 2},
             4,
             0,
             MuonScale::kOriginal},
        Case{"MuonOfTwiceTheBaseWidth",
             ResidualMethod::kPreLn,
             RateSchedule::kInverseSqrt,
             {},
             2,
             8,
             MuonScale::kMatchRms}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hadal::testing
