#include "tests/integration/pipeline_run.h"

#include <cstring>

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/instruments/depth_recorder.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/validator.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/bleu.h"
#include "runtime/data/sampling_order.h"
#include "runtime/data/word_errors.h"
#include "runtime/status_macros.h"
#include "tests/support/arena_poison.h"
#include "tests/support/step_batches.h"

namespace hadal::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

// What ranks share: the plan, and the outcome they fill in.
struct Shared {
  Shared(const RunSpec& run, const Corpus& data) : spec(run), corpus(data), plan(ModelPlan::Make(run.model)) {
    plan.compute_storage = run.compute_storage;
    plan.frozen = run.frozen;
    plan.muon_steps = run.optimizer.muon_steps();
    outcome.weights.resize(plan.parameters.size());
    outcome.first_moments.resize(plan.parameters.size());
    outcome.moment_bytes.resize(run.ranks);
    outcome.arena_bytes.resize(run.ranks);
  }

  // Every replica's plan. The schedule of hundreds of ranks is checked once, not on every rank.
  absl::Status MakePipelines() {
    HADAL_ASSIGN_OR_RETURN(const PipelineLayout first,
                           MakePipelineLayout(plan, spec.batch, spec.pipeline, spec.ranks, /*rank=*/0,
                                              {.device_transfers = static_cast<bool>(spec.connect_devices),
                                               .free_links = !spec.make_device}));
    for (int replica = 0; replica < first.grid.replicas; ++replica) {
      HADAL_ASSIGN_OR_RETURN(pipelines.emplace_back(), LayoutOfReplica(first, replica));
    }
    return absl::OkStatus();
  }

  const RunSpec& spec;
  const Corpus& corpus;
  ModelPlan plan;
  std::vector<PipelineLayout> pipelines;  // [replicas]
  bool all_ranks_share = false;           // ranks are threads, with one outcome
  std::mutex mutex;
  RunOutcome outcome;
};

// A vocabulary of made-up words.
Vocabulary Words(int32_t size) {
  std::vector<std::string> tokens;
  for (int32_t id = kSpecialTokens; id < size; ++id) tokens.push_back(absl::StrCat("w", id));
  return *Vocabulary::FromTokens(tokens);
}

// Each slice from the rank that owns it.
void Collect(Shared& shared, Engine& engine) {
  const std::lock_guard lock(shared.mutex);
  for (const StateSlice& slice : engine.state().owned()) {
    const int64_t elements = shared.plan.parameters[slice.parameter].elements();
    const auto copy = [&](std::vector<float>& to, Vector from) {
      to.resize(elements);
      engine.stage().stream().ToHost(to.data() + slice.slice * kSliceElements, from.data, from.size * sizeof(float));
    };
    copy(shared.outcome.weights[slice.parameter], slice.weight);
    copy(shared.outcome.first_moments[slice.parameter], slice.first_moment);
  }
  shared.outcome.moment_bytes[engine.grid().world().rank()] = engine.state().moment_bytes();
}

template <typename T>
std::vector<T> OnHost(const Stream& stream, VectorOf<T> values) {
  std::vector<T> host(values.size);
  stream.ToHost(host.data(), values.data, values.size * static_cast<int64_t>(sizeof(T)));
  return host;
}

// What this rank has of every slice, in fp32 and rounded, is what its owner has.  REQUIRES: all ranks have collected.
void ExpectCollectedWeights(Shared& shared, Engine& engine) {
  const std::lock_guard lock(shared.mutex);
  const Stream& stream = engine.stage().stream();
  for (const StateSlice& slice : engine.state().slices()) {
    ASSERT_TRUE(!slice.weight.empty() || slice.is_rounded()) << "nothing here of parameter " << slice.parameter;
    const float* collected = shared.outcome.weights[slice.parameter].data() + slice.slice * kSliceElements;
    const std::vector<float> weight = OnHost(stream, slice.weight);
    ASSERT_EQ(std::memcmp(collected, weight.data(), weight.size() * sizeof(float)), 0)
        << "replica " << engine.grid().replica() << " has other weights of parameter " << slice.parameter;
    const std::vector<BFloat16> rounded = OnHost(stream, slice.rounded);
    for (size_t i = 0; i < rounded.size(); ++i) {
      ASSERT_EQ(rounded[i].bits, RoundedToBFloat16(collected[i]).bits)
          << "replica " << engine.grid().replica() << " reads other weights of parameter " << slice.parameter;
    }
  }
}

// One rank of a run, on its stream.
class RunningRank {
 public:
  // `device`, `devices`: null on the CPU, or where what ranks exchange goes through the host.
  RunningRank(Shared& shared, const PipelineLayout& pipeline, Communicator& communicator, Device* device,
              NcclCommunicator* devices)
      : shared_(shared),
        spec_(shared.spec),
        pipeline_(pipeline),
        communicator_(communicator),
        device_(device),
        device_communicator_(devices),
        stream_(device != nullptr ? Stream::On(*device, spec_.threads) : Stream::Cpu(spec_.threads)) {}

  absl::Status Run() {
    HADAL_RETURN_IF_ERROR(MakeEngine());
    HADAL_ASSIGN_OR_RETURN(
        SamplingOrder order,
        SamplingOrder::Create(shared_.corpus, {.seed = spec_.seed,
                                               .capacity = {spec_.batch.source_tokens, spec_.batch.target_tokens},
                                               .micro_batches_per_step = spec_.batch.micro_batches,
                                               .spec_augment = spec_.spec_augment,
                                               .masking = MaskingFor(spec_.model)}));
    const StepBatches first = NextStep(order);
    HADAL_RETURN_IF_ERROR(order.Continue(DataPlace()));
    HADAL_RETURN_IF_ERROR(engine_->ProfileResidualStream(first.micro_batches[0], {.seed = spec_.seed}).status());
    HADAL_RETURN_IF_ERROR(MakeObservers());
    for (int step = 0; step < spec_.steps; ++step) {
      const StepBatches batches = NextStep(order, step);
      HADAL_RETURN_IF_ERROR(Train(step, batches));
      if (spec_.validate_every_step) HADAL_RETURN_IF_ERROR(Evaluate(batches));
      if (bleu_) HADAL_RETURN_IF_ERROR(Translate(step));
    }
    return HandBack();
  }

 private:
  // Rank 0 tells what all have in common.
  bool tells() const { return communicator_.rank() == 0; }

  // With the weights that the seed says.
  absl::Status MakeEngine() {
    HADAL_ASSIGN_OR_RETURN(engine_, Engine::Create({.plan = shared_.plan,
                                                    .pipeline = pipeline_,
                                                    .stream = stream_,
                                                    .purpose = Purpose::kTraining,
                                                    .world = communicator_,
                                                    .timeout = kTimeout,
                                                    .device_communicator = device_communicator_,
                                                    .arena_gap_bytes = spec_.poison ? kPoisonedGapBytes : 0}));
    if (spec_.poison) PoisonLastingGaps(stream_, engine_->arena(), engine_->layout());
    shared_.outcome.arena_bytes[communicator_.rank()] = engine_->arena_bytes();
    HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline_, engine_->stage().parameters(), spec_.seed, stream_,
                                               engine_->grid().pipeline(), kTimeout));
    return engine_->DistributeWeights();
  }

  // What translates and what records the depth, where the run asks for them.
  absl::Status MakeObservers() {
    if (pipeline_.decoder) {
      const Vocabulary target = Words(spec_.model.target_vocabulary);
      const bool text = spec_.model.source_vocabulary > 0;
      bleu_.emplace(shared_.corpus, CorpusVocabularies{text ? Words(spec_.model.source_vocabulary) : target, target},
                    spec_.bleu_sentences, shared_.plan, pipeline_, kTimeout, BleuTokenizer::kChar);
    }
    if (spec_.depth_directory.empty()) return absl::OkStatus();
    const TrainOptions options{.seed = spec_.seed,
                               .run_directory = spec_.depth_directory,
                               .model = spec_.model,
                               .batch = spec_.batch,
                               .depth = {.dense_steps = spec_.steps, .probe_tokens = 64},
                               .masking = MaskingFor(spec_.model)};
    HADAL_ASSIGN_OR_RETURN(recorder_, DepthRecorder::Create(options, shared_.plan, pipeline_, shared_.corpus, *engine_,
                                                            communicator_, kTimeout));
    HADAL_ASSIGN_OR_RETURN(const std::string unrecorded, recorder_->Begin(0, 0));
    EXPECT_EQ(unrecorded, "");
    return absl::OkStatus();
  }

  // Another program begins (training 0, translation 1), for all that it may know of what lies in its memory. The one
  // before has stayed inside its regions.
  void BeginProgram(int program) {
    if (!spec_.poison) return;
    ExpectGapsIntact();
    PoisonScratch(stream_, engine_->arena());
    program_ = program;
  }
  void ExpectGapsIntact() const {
    if (!spec_.poison || program_ < 0) return;
    EXPECT_EQ(WrittenGaps(stream_, engine_->arena(), engine_->layout(), program_), 0) << "outside of all tensors";
  }

  absl::Status Train(int step, const StepBatches& batches) {
    const StepScalars scalars{.seed = spec_.seed,
                              .step = step,
                              .update = step + 1,
                              .gradient_scale = 1.0f / static_cast<float>(batches.target_tokens)};
    UpdateSettings update{.optimizer = spec_.optimizer, .learning_rate = spec_.learning_rate};
    if (recorder_) recorder_->BeforeStep(step, update);
    BeginProgram(0);
    HADAL_ASSIGN_OR_RETURN(const StepResult result, engine_->TrainingStep(batches.micro_batches, scalars, update));
    EXPECT_TRUE(device_ == nullptr || device_->Idle()) << "work of the step goes on behind its time";
    if (recorder_) {
      HADAL_ASSIGN_OR_RETURN(const std::optional<DepthMetrics> depth,
                             recorder_->AfterStep(step, step + 1, step + 1, result));
      if (tells()) shared_.outcome.depth.push_back(depth.value());
    }
    if (!tells()) return absl::OkStatus();
    shared_.outcome.loss.push_back(result.gradient.loss.loss);
    shared_.outcome.gradient_norm.push_back(result.gradient.norm);
    shared_.outcome.launches.push_back(result.times.launches);
    return absl::OkStatus();
  }

  absl::Status Evaluate(const StepBatches& batches) {
    const StepScalars scalars{.seed = spec_.seed, .training = false};
    HADAL_ASSIGN_OR_RETURN(const LossSums sums, engine_->Evaluate(batches.micro_batches, scalars));
    if (tells()) shared_.outcome.validation_loss.push_back(sums.loss);
    return absl::OkStatus();
  }

  absl::Status Translate(int step) {
    BeginProgram(1);
    HADAL_ASSIGN_OR_RETURN(const TranslatedValidation translated, (*bleu_)(*engine_, step + 1));
    BleuCounts counts;
    WordErrors words, characters;
    for (size_t i = 0; i < bleu_->hypotheses().size(); ++i) {
      counts += CountBleuMatches(bleu_->hypotheses()[i], {bleu_->references()[i]}, BleuTokenizer::kChar);
      words += CountWordErrors(bleu_->hypotheses()[i], bleu_->references()[i]);
      characters += CountCharacterErrors(bleu_->hypotheses()[i], bleu_->references()[i]);
    }
    EXPECT_EQ(translated.scores->bleu, BleuFromCounts(counts).score);
    EXPECT_EQ(translated.scores->word_error_rate, words.Rate());
    EXPECT_EQ(translated.scores->character_error_rate, characters.Rate());
    EXPECT_EQ(std::ssize(bleu_->hypotheses()), spec_.bleu_sentences);
    if (!tells()) return absl::OkStatus();
    shared_.outcome.bleu.push_back(translated.scores.value().bleu);
    shared_.outcome.translations = bleu_->hypotheses();
    shared_.outcome.samples.push_back(translated.sample);
    return absl::OkStatus();
  }

  // This rank's weights and moments; the devices' connections end.
  absl::Status HandBack() {
    ExpectGapsIntact();
    Collect(shared_, *engine_);
    if (shared_.all_ranks_share) {
      HADAL_RETURN_IF_ERROR(Collectives(communicator_, kTimeout).Barrier("weights collected"));
      ExpectCollectedWeights(shared_, *engine_);
    }
    if (device_communicator_ == nullptr) return absl::OkStatus();
    EXPECT_EQ(device_communicator_->unreserved(), 0) << "more transfers at once than the engine has reserved";
    return device_communicator_->Close(kTimeout);
  }

  Shared& shared_;
  const RunSpec& spec_;
  const PipelineLayout& pipeline_;
  Communicator& communicator_;
  Device* const device_;
  NcclCommunicator* const device_communicator_;
  const Stream stream_;
  std::unique_ptr<Engine> engine_;
  int program_ = -1;                         // that ran last, since poison was spread
  std::optional<ValidationBleu> bleu_;       // where the pipeline has a decoder
  std::unique_ptr<DepthRecorder> recorder_;  // with depth_directory
};

absl::Status RunRank(Shared& shared, Communicator& communicator) {
  PrepareComputeThread();
  const RunSpec& spec = shared.spec;
  const PipelineLayout& pipeline = shared.pipelines[shared.pipelines[0].grid.ReplicaOf(communicator.rank())];
  const std::unique_ptr<Device> device = spec.make_device ? spec.make_device(communicator.rank()) : nullptr;
  std::unique_ptr<NcclCommunicator> device_communicator;
  absl::Status status;
  if (spec.connect_devices) {
    absl::StatusOr<std::unique_ptr<NcclCommunicator>> connected =
        spec.connect_devices(*device, communicator, TransferGroups(shared.plan, pipeline));
    status = connected.status();
    if (connected.ok()) device_communicator = *std::move(connected);
  }
  if (status.ok()) status = RunningRank(shared, pipeline, communicator, device.get(), device_communicator.get()).Run();
  if (!status.ok()) communicator.Abort(1);  // before anything that peers may still write to is let go
  return status;
}

std::string FirstDifferenceOf(const char* what, const std::vector<std::vector<float>>& a,
                              const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return absl::StrCat(what, " of ", a.size(), " vs. ", b.size(), " parameters");
  for (size_t p = 0; p < a.size(); ++p) {
    if (a[p].size() != b[p].size()) {
      return absl::StrCat(what, " of parameter ", p, ": ", a[p].size(), " vs. ", b[p].size(), " elements");
    }
    for (size_t i = 0; i < a[p].size(); ++i) {
      if (std::memcmp(&a[p][i], &b[p][i], sizeof(float)) == 0) continue;
      return absl::StrCat(what, " of parameter ", p, " differ at element ", i, ": ", a[p][i], " vs. ", b[p][i]);
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<RunOutcome> TryToTrain(const RunSpec& spec, const Corpus& corpus) {
  Shared shared(spec, corpus);
  shared.all_ranks_share = true;
  InProcessWorld world(spec.ranks);
  HADAL_RETURN_IF_ERROR(shared.MakePipelines());
  HADAL_RETURN_IF_ERROR(world.Run([&](Communicator& communicator) { return RunRank(shared, communicator); }));
  return std::move(shared.outcome);
}

RunOutcome Train(const RunSpec& spec, const Corpus& corpus) {
  absl::StatusOr<RunOutcome> outcome = TryToTrain(spec, corpus);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *std::move(outcome) : RunOutcome();
}

RunOutcome TrainRank(const RunSpec& spec, const Corpus& corpus, Communicator& communicator) {
  Shared shared(spec, corpus);
  absl::Status status = shared.MakePipelines();
  if (status.ok()) status = RunRank(shared, communicator);
  EXPECT_TRUE(status.ok()) << status;
  return std::move(shared.outcome);
}

absl::Status WithTrainer(const TrainOptions& options, const TrainingSurroundings& surroundings,
                         const std::function<absl::Status(Trainer&)>& use, Storage compute_storage) {
  PrepareComputeThread();
  ModelPlan plan = ModelPlan::Make(options.model);
  plan.compute_storage = compute_storage;
  plan.muon_steps = options.optimizer.muon_steps();
  const Communicator& world = surroundings.communicator;
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                         MakePipelineLayout(plan, options.batch, options.pipeline, world.size(), world.rank()));
  HADAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Trainer> trainer,
      Trainer::Create(options, plan, pipeline, surroundings, {.run_directory = options.run_directory}));
  return use(*trainer);
}

std::string FirstDifference(const RunOutcome& a, const RunOutcome& b) {
  if (a.loss.size() != b.loss.size()) return absl::StrCat(a.loss.size(), " vs. ", b.loss.size(), " steps");
  if (a.loss.empty() || a.weights.empty()) return "nothing was trained";
  for (size_t step = 0; step < a.loss.size(); ++step) {
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
