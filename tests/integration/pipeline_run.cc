#include "tests/integration/pipeline_run.h"

#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "pipeline/engine.h"
#include "pipeline/parameter_broadcast.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/validation_bleu.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"

namespace hadal::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

// What all ranks share: the plan, and the outcome they fill in.
struct Shared {
  const RunSpec& spec;
  const Corpus& corpus;
  ModelPlan plan;
  PipelinePlan pipeline;
  std::mutex mutex;
  RunOutcome outcome;
};

absl::Status Evaluate(Shared& shared, Engine& engine, const std::vector<PackedBatch>& batches) {
  const StepScalars scalars{.seed = shared.spec.seed, .training = false};
  return engine.Evaluate(batches, scalars).status();
}

// A vocabulary of made-up words.
Vocabulary Words(int32_t size) {
  std::vector<std::string> tokens;
  for (int32_t id = kSpecialTokens; id < size; ++id) tokens.push_back(absl::StrCat("w", id));
  return *Vocabulary::FromTokens(tokens);
}

void Collect(Shared& shared, const ParameterStore& parameters) {
  const std::lock_guard lock(shared.mutex);
  for (const int32_t p : parameters.owned()) {
    const Vector weight = parameters.WeightVector(p);
    const Vector moment = parameters.FirstMoment(p);
    shared.outcome.weights[p].assign(weight.data, weight.data + weight.size);
    shared.outcome.first_moments[p].assign(moment.data, moment.data + moment.size);
  }
}

absl::Status RunRank(Shared& shared, Communicator& communicator) {
  PrepareComputeThread();
  const RunSpec& spec = shared.spec;
  const Stream stream = Stream::Cpu(spec.threads);
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         Engine::Create(shared.plan, shared.pipeline, stream, true, communicator, kTimeout));
  const ParameterStore& parameters = engine->stage().parameters();
  HADAL_RETURN_IF_ERROR(InitializeParameters(shared.pipeline, parameters, spec.seed, stream, communicator, kTimeout));
  HADAL_RETURN_IF_ERROR(engine->ShareTiedWeights());
  HADAL_ASSIGN_OR_RETURN(
      SamplingOrder order,
      SamplingOrder::Create(shared.corpus, {.seed = spec.seed,
                                            .capacity = {spec.batch.source_tokens, spec.batch.target_tokens},
                                            .micro_batches_per_step = spec.batch.micro_batches}));
  ValidationBleu bleu(shared.corpus, Words(spec.model.target_vocabulary), 12, shared.plan, shared.pipeline,
                      communicator, {.beam = {.max_length_b = 20}}, kTimeout);
  for (int step = 0; step < spec.steps; ++step) {
    const StepBatches batches = order.At(step);
    const StepScalars scalars{.seed = spec.seed,
                              .step = step,
                              .update = step + 1,
                              .gradient_scale = 1.0f / static_cast<float>(batches.target_tokens)};
    HADAL_ASSIGN_OR_RETURN(const StepResult result,
                           engine->TrainingStep(batches.micro_batches, scalars,
                                                {.optimizer = spec.optimizer, .learning_rate = spec.learning_rate}));
    if (spec.validate_every_step) HADAL_RETURN_IF_ERROR(Evaluate(shared, *engine, batches.micro_batches));
    if (spec.translate_every_step) {
      HADAL_ASSIGN_OR_RETURN(const double score, bleu(*engine, step + 1));
      EXPECT_GE(score, 0);
      EXPECT_EQ(bleu.hypotheses().size(), 12u);
    }
    if (communicator.rank() != 0) continue;
    shared.outcome.loss.push_back(result.gradient.loss.loss);
    shared.outcome.gradient_norm.push_back(result.gradient.norm);
  }
  Collect(shared, parameters);
  return absl::OkStatus();
}

std::string FirstDifferenceOf(const char* what, const std::vector<std::vector<float>>& a,
                              const std::vector<std::vector<float>>& b) {
  for (size_t p = 0; p < a.size(); ++p) {
    for (size_t i = 0; i < a[p].size(); ++i) {
      if (std::memcmp(&a[p][i], &b[p][i], sizeof(float)) == 0) continue;
      return absl::StrCat(what, " of parameter ", p, " differ at element ", i, ": ", a[p][i], " vs. ", b[p][i]);
    }
  }
  return "";
}

}  // namespace

Corpus RandomCorpus(int samples, int longest, int vocabulary, uint32_t seed) {
  uint64_t next = 0;
  const auto draw = [&](int n) { return static_cast<int32_t>(UniformAt(seed, RandomSite::kSampling, 99, next++) * n); };
  std::vector<Sample> list(samples);
  for (Sample& sample : list) {
    sample.source.resize(1 + draw(longest));
    sample.target.resize(1 + draw(longest));
    for (int32_t& token : sample.source) token = kSpecialTokens + draw(vocabulary - kSpecialTokens);
    for (int32_t& token : sample.target) token = kSpecialTokens + draw(vocabulary - kSpecialTokens);
  }
  absl::StatusOr<Corpus> corpus = Corpus::FromSamples(list, vocabulary, vocabulary);
  HADAL_CHECK(corpus.ok());
  return *std::move(corpus);
}

ModelOptions SmallModel(ResidualMethod method, int d_model, int vocabulary) {
  ModelOptions model{.encoder_layers = 5,
                     .decoder_layers = 7,
                     .d_model = d_model,
                     .d_ff = 2 * d_model,
                     .heads = 4,
                     .source_vocabulary = vocabulary,
                     .target_vocabulary = vocabulary,
                     .max_positions = 64,
                     .dropout = 0.1,
                     .attention_dropout = 0.1,
                     .activation_dropout = 0.1,
                     .label_smoothing = 0.1};
  ApplyResidualMethod(method, model);
  model.branch_growth_updates = 10;
  return model;
}

RunOutcome Train(const RunSpec& spec, const Corpus& corpus) {
  Shared shared{.spec = spec, .corpus = corpus, .plan = ModelPlan::Make(spec.model)};
  absl::StatusOr<PipelinePlan> pipeline = MakePipelinePlan(shared.plan, spec.batch, spec.pipeline, spec.ranks);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  shared.pipeline = *std::move(pipeline);
  shared.outcome.weights.resize(shared.plan.parameters.size());
  shared.outcome.first_moments.resize(shared.plan.parameters.size());
  InProcessWorld world(spec.ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) { return RunRank(shared, communicator); });
  EXPECT_TRUE(status.ok()) << status;
  return std::move(shared.outcome);
}

std::string FirstDifference(const RunOutcome& a, const RunOutcome& b) {
  for (size_t step = 0; step < a.loss.size(); ++step) {
    if (step >= b.loss.size()) return "runs of different length";
    if (a.loss[step] != b.loss[step]) {
      return absl::StrCat("losses of step ", step, " differ: ", a.loss[step], " vs. ", b.loss[step]);
    }
    if (a.gradient_norm[step] != b.gradient_norm[step]) {
      return absl::StrCat("gradient norms of step ", step, " differ: ", a.gradient_norm[step], " vs. ",
                          b.gradient_norm[step]);
    }
  }
  const std::string weights = FirstDifferenceOf("weights", a.weights, b.weights);
  return weights.empty() ? FirstDifferenceOf("first moments", a.first_moments, b.first_moments) : weights;
}

}  // namespace hadal::testing
