#include "tools/bench/bench_profile.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/data/sampling_order.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"
#include "tools/median.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/profiled_costs.h"

namespace hadal {
namespace {

constexpr absl::Duration kProfileTimeout = absl::Minutes(30);
constexpr int64_t kLeastElements = int64_t{1} << 23;  // of weights: exceeds the caches
constexpr int32_t kMostMicroBatches = 8;              // per step: enough for a mean
constexpr int32_t kUsualSegment = 5;                  // sublayers, if the config has no recomputation

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown";
}

// Measures the time of each sublayer inside a chunk that runs unchanged. A chunk calls its progress hook after every
// sublayer and every part (pipeline/stage/chunk.h), in an order that follows from the plan alone.
class SublayerClock {
 public:
  // For a chunk that has the whole model of `plan`, recomputed in segments of `recompute_every` sublayers; 0: not.
  SublayerClock(const ModelPlan& plan, int32_t recompute_every)
      : read_([this] { times_.push_back(MonotonicSeconds()); }), seconds_(plan.sublayers.size()) {
    if (plan.source_embedding() >= 0) AddPart(plan.source_embedding());
    AddSegments(1, plan.encoder_end(), recompute_every, plan);
    if (plan.options.has_decoder()) {
      AddPart(plan.target_embedding());
      AddSegments(plan.target_embedding() + 1, plan.output_head(), recompute_every, plan);
    }
    AddPart(plan.output_head());
    std::reverse(backward_.begin(), backward_.end());
  }
  SublayerClock(const SublayerClock&) = delete;
  SublayerClock& operator=(const SublayerClock&) = delete;

  // The hook: SublayerContext::progress must point to it while the chunk runs.
  const std::function<void()>& progress() const { return read_; }

  // Call BeginForward before Chunk::Forward, BeginBackward before Chunk::Backward, and End after either. End adds the
  // measured times to seconds().
  void BeginForward() { Begin(forward_); }
  void BeginBackward() { Begin(backward_); }
  void End() {
    HADAL_CHECK_EQ(times_.size(), marks_->size() + 1);
    for (size_t i = 0; i < marks_->size(); ++i) {
      seconds_[(*marks_)[i].sublayer].*(*marks_)[i].part += times_[i + 1] - times_[i];
    }
  }

  // Sums since the last Reset.  [sublayers]
  const std::vector<SublayerSeconds>& seconds() const { return seconds_; }
  void Reset() { std::fill(seconds_.begin(), seconds_.end(), SublayerSeconds()); }

 private:
  struct Mark {
    int32_t sublayer = 0;
    double SublayerSeconds::*part = nullptr;
  };

  void Begin(const std::vector<Mark>& marks) {
    marks_ = &marks;
    times_.assign(1, MonotonicSeconds());
  }
  // A segment calls the hook after each of its sublayers and once at its end; backward_ is built from its end. A stack
  // that combines its layers has one segment a layer; one that does so, reads blocks or has a second stream has a part
  // behind the last segment.
  void AddSegments(int32_t first, int32_t last, int32_t recompute_every, const ModelPlan& plan) {
    const bool combines = first < last && plan.Combines(plan.sublayers[first].stack);
    const int32_t length = combines ? 1 : recompute_every > 0 ? recompute_every : std::max(last - first, 1);
    for (int32_t begin = first, end = first; begin < last; begin = end) {
      end = plan.SegmentEnd(begin, length, last);
      backward_.push_back({begin, &SublayerSeconds::backward});
      for (int32_t s = begin; s < end; ++s) {
        forward_.push_back({s, &SublayerSeconds::forward});
        backward_.push_back({s, &SublayerSeconds::backward});
      }
      forward_.push_back({end - 1, &SublayerSeconds::forward});
      for (int32_t s = end - 1; recompute_every > 0 && s >= begin; --s) {
        backward_.push_back({s, &SublayerSeconds::recompute});
      }
    }
    if (first >= last) return;
    const Stack stack = plan.sublayers[first].stack;
    if (plan.KeepsHistory(stack) || plan.HasSecondStream(stack)) AddPart(last - 1);
  }
  void AddPart(int32_t sublayer) {
    forward_.push_back({sublayer, &SublayerSeconds::forward});
    backward_.push_back({sublayer, &SublayerSeconds::backward});
  }

  std::vector<Mark> forward_, backward_;  // in the order of the calls
  std::function<void()> read_;
  const std::vector<Mark>* marks_ = nullptr;
  std::vector<double> times_;
  std::vector<SublayerSeconds> seconds_;
};

// The mean of each number over the ranks.
absl::StatusOr<std::vector<double>> MeanOverRanks(Collectives& collectives, const std::vector<double>& mine) {
  HADAL_ASSIGN_OR_RETURN(const auto all, collectives.AllGather(mine, "a measurement"));
  std::vector<double> mean(mine.size(), 0);
  for (const std::vector<double>& of_rank : all) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += of_rank[i] / static_cast<double>(all.size());
  }
  return mean;
}

// The medians of one engine's rounds.
struct Rounds {
  std::map<std::string, SublayerSeconds> kinds;  // medians of one micro-batch in one sublayer
  double held_seconds_per_element = 0, updated_seconds_per_element = 0;
  int64_t beside_arena_bytes = 0;
};

// One rank's engine over the whole shallow model.
class StageProfile {
 public:
  StageProfile(const ModelPlan& plan, const std::vector<PackedBatch>& batches, const BatchOptions& batch,
               int32_t recompute_every, const Stream& stream)
      : plan_(plan),
        batches_(batches),
        batch_(batch),
        recompute_every_(recompute_every),
        stream_(stream),
        clock_(plan, recompute_every) {}

  absl::StatusOr<Rounds> Measure(int rounds, Collectives& world) {
    HADAL_RETURN_IF_ERROR(world.AllOk(Prepare(), "allocating memory"));
    HADAL_RETURN_IF_ERROR(Step().status());
    for (int i = 0; i < rounds; ++i) {
      HADAL_RETURN_IF_ERROR(world.Barrier("before a round"));
      HADAL_ASSIGN_OR_RETURN(const StepResult step, Step());
      TimeSublayers();
      AddRound(step);
    }
    ReturnFreeMemory();
    Rounds result{.held_seconds_per_element = Median(held_),
                  .updated_seconds_per_element = Median(updated_),
                  .beside_arena_bytes = std::max<int64_t>(0, HeldBytes() - engine_->arena_bytes())};
    for (const auto& [kind, of_rounds] : kinds_) {
      for (const auto part : {&SublayerSeconds::forward, &SublayerSeconds::recompute, &SublayerSeconds::backward}) {
        std::vector<double> values;
        for (const SublayerSeconds& seconds : of_rounds) values.push_back(seconds.*part);
        result.kinds[kind].*part = Median(std::move(values));
      }
    }
    return result;
  }

 private:
  absl::Status Prepare() {
    BatchOptions batch = batch_;
    batch.micro_batches = static_cast<int32_t>(batches_.size());
    HADAL_ASSIGN_OR_RETURN(pipeline_,
                           MakePipelineLayout(plan_, batch, {.recompute_every = recompute_every_}, /*ranks=*/1));
    Communicator& communicator = alone_.communicator(0);
    HADAL_ASSIGN_OR_RETURN(engine_, Engine::Create({.plan = plan_,
                                                    .pipeline = pipeline_,
                                                    .stream = stream_,
                                                    .purpose = Purpose::kTraining,
                                                    .world = communicator,
                                                    .timeout = kProfileTimeout}));
    HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline_, engine_->stage().parameters(), /*seed=*/1, stream_,
                                               communicator, kProfileTimeout));
    for (const PackedBatch& packed : batches_) target_tokens_ += static_cast<double>(packed.target_rows());
    return absl::OkStatus();
  }

  absl::StatusOr<StepResult> Step() {
    const StepScalars scalars{
        .seed = 1, .step = steps_, .update = steps_ + 1, .gradient_scale = static_cast<float>(1 / target_tokens_)};
    ++steps_;
    return engine_->TrainingStep(batches_, scalars, {.optimizer = {.clip_norm = 1}, .learning_rate = 1e-6});
  }

  void TimeSublayers() {
    clock_.Reset();
    const StepScalars scalars{.seed = 1, .step = steps_, .gradient_scale = static_cast<float>(1 / target_tokens_)};
    for (const PackedBatch& packed : batches_) {
      SublayerContext context = engine_->stage().Context(packed, scalars, &clock_.progress());
      clock_.BeginForward();
      engine_->stage().chunk(0).Forward(context, {});
      clock_.End();
      clock_.BeginBackward();
      engine_->stage().chunk(0).Backward(context, {});
      clock_.End();
    }
  }

  // The total time of all sublayers comes from a training step, its distribution from the clock.
  void AddRound(const StepResult& step) {
    SublayerSeconds sum;
    std::map<std::string, SublayerSeconds> kinds;
    std::map<std::string, double> counts;
    for (size_t s = 0; s < plan_.sublayers.size(); ++s) {
      const std::string kind = ProfiledKind(plan_.sublayers[s]);
      counts[kind] += static_cast<double>(batches_.size());
      for (const auto part : {&SublayerSeconds::forward, &SublayerSeconds::recompute, &SublayerSeconds::backward}) {
        kinds[kind].*part += clock_.seconds()[s].*part;
        sum.*part += clock_.seconds()[s].*part;
      }
    }
    const auto scale = [](double whole, double parts) { return parts > 0 ? whole / parts : 0; };
    const double forward = scale(step.times.forward_seconds, sum.forward);
    const double recompute = scale(step.times.recompute_seconds, sum.recompute);
    const double backward = scale(step.times.backward_seconds, sum.backward);
    for (auto& [kind, seconds] : kinds) {
      const double count = counts[kind];
      kinds_[kind].push_back({seconds.forward * forward / count, seconds.recompute * recompute / count,
                              seconds.backward * backward / count});
    }
    const double elements = static_cast<double>(plan_.ParameterElements());
    const double computed = step.times.forward_seconds + step.times.recompute_seconds + step.times.backward_seconds;
    updated_.push_back(step.times.optimizer_seconds / elements);
    held_.push_back(std::max(0.0, step.seconds - computed - step.times.optimizer_seconds) / elements);
  }

  const ModelPlan& plan_;
  const std::vector<PackedBatch>& batches_;
  const BatchOptions batch_;
  const int32_t recompute_every_;
  const Stream stream_;
  InProcessWorld alone_{1};
  PipelineLayout pipeline_;
  std::unique_ptr<Engine> engine_;
  SublayerClock clock_;
  int64_t steps_ = 0;
  double target_tokens_ = 0;
  std::map<std::string, std::vector<SublayerSeconds>> kinds_;  // [rounds] each
  std::vector<double> held_, updated_;
};

// Seconds of an exchange of `bytes` between ranks 2i and 2i + 1, both ways at once.
absl::StatusOr<double> ExchangeOnce(Communicator& communicator, std::vector<char>& out, std::vector<char>& in,
                                    int64_t bytes) {
  const int peer = communicator.rank() ^ 1;
  const Stopwatch watch;
  HADAL_ASSIGN_OR_RETURN(CommRequest receive, communicator.Receive(in.data(), bytes, peer, /*tag=*/1));
  HADAL_ASSIGN_OR_RETURN(CommRequest send, communicator.Send(out.data(), bytes, peer, /*tag=*/1));
  HADAL_RETURN_IF_ERROR(communicator.Wait(receive, absl::Now() + kProfileTimeout, "a measured message"));
  HADAL_RETURN_IF_ERROR(communicator.Wait(send, absl::Now() + kProfileTimeout, "a measured message"));
  return watch.Seconds();
}

absl::Status MeasureMessages(Communicator& communicator, Collectives& world, int rounds, config::Profile& profile) {
  constexpr int64_t kSmall = 1 << 10, kLarge = 1 << 20;
  std::vector<char> out(kLarge, 1), in(kLarge, 1);
  std::vector<double> small, large;
  const bool paired = (communicator.rank() ^ 1) < communicator.size();
  for (int i = 0; paired && i < 3 * rounds; ++i) {
    HADAL_ASSIGN_OR_RETURN(const double quick, ExchangeOnce(communicator, out, in, kSmall));
    HADAL_ASSIGN_OR_RETURN(const double slow, ExchangeOnce(communicator, out, in, kLarge));
    small.push_back(quick);
    large.push_back(slow);
  }
  if (communicator.size() == 1) return absl::OkStatus();
  const double latency = paired ? Median(small) : 0, longer = paired ? Median(large) : 0;
  HADAL_ASSIGN_OR_RETURN(const std::vector<double> mean, MeanOverRanks(world, {latency, longer}));
  profile.set_message_microseconds(1e6 * mean[0]);
  // On a busy host a short message can take longer than a long one; most of a long one's time depends on its bytes in
  // any case.
  const double held = std::max(mean[1] - mean[0], 0.5 * mean[1]);
  profile.set_message_gb_per_second(1e-9 * static_cast<double>(kLarge - kSmall) / held);
  return absl::OkStatus();
}

// Seconds to add another replica's piece, just received, to the own one.
double SumSecondsPerElement(const Stream& stream, int rounds) {
  constexpr int64_t kElements = int64_t{1} << 22;
  std::vector<float> sum(kElements, 1.0f), piece(kElements, 1e-3f);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const Stopwatch watch;
    stream.ForRanges(kElements, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) sum[e] += piece[e];
    });
    seconds.push_back(watch.Seconds() / kElements);
  }
  return Median(seconds);
}

// Rounds milliseconds to six digits.
double Rounded(double value) { return value > 0 ? std::stod(absl::StrFormat("%.6g", value)) : 0; }

class ProfileBench {
 public:
  ProfileBench(const BenchProfileOptions& options, const Corpus& corpus, Communicator& communicator,
               const Stream& stream)
      : options_(options),
        corpus_(corpus),
        communicator_(communicator),
        world_(communicator, kProfileTimeout),
        stream_(stream),
        plan_(ModelPlan::Make(ShallowModel(options.train.model, kLeastElements))) {}

  absl::StatusOr<config::Profile> Measure() {
    Describe();
    // First, so that memory that MPI allocates for messages counts as the process's memory.
    HADAL_RETURN_IF_ERROR(MeasureMessages(communicator_, world_, options_.rounds, profile_));
    double held = 0, updated = 0, beside = 0;
    for (int i = 0; i <= options_.halvings; ++i) {
      BatchOptions batch = options_.train.batch;
      batch.source_tokens >>= i;
      batch.target_tokens >>= i;
      HADAL_ASSIGN_OR_RETURN(const Rounds rounds, MeasureCapacity(batch));
      if (i > 0) continue;
      held = rounds.held_seconds_per_element;
      updated = rounds.updated_seconds_per_element;
      beside = static_cast<double>(rounds.beside_arena_bytes);
    }
    const ActivationCapacity capacity = CapacityOf(plan_.options, options_.train.batch);
    HADAL_RETURN_IF_ERROR(world_.Barrier("before the products"));
    const double gflops = MeasureRate(plan_.options, capacity, stream_).gflops;
    const double sum = SumSecondsPerElement(stream_, options_.rounds);
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> mean, MeanOverRanks(world_, {held, updated, beside, gflops, sum}));
    profile_.set_held_nanoseconds(Rounded(1e9 * mean[0]));
    profile_.set_updated_nanoseconds(Rounded(1e9 * mean[1]));
    profile_.set_process_bytes(static_cast<int64_t>(mean[2]) + options_.carried_bytes);
    profile_.set_gflops(Rounded(mean[3]));
    profile_.set_sum_nanoseconds(Rounded(1e9 * mean[4]));
    return profile_;
  }

 private:
  void Describe() {
    profile_.set_processor(ProcessorName());
    profile_.set_ranks(communicator_.size());
    profile_.set_threads(stream_.threads());
    config::ProfiledModel& model = *profile_.mutable_model();
    model.set_d_model(plan_.options.d_model);
    model.set_d_ff(plan_.options.d_ff);
    model.set_heads(plan_.options.heads);
    model.set_block(BlockText(plan_.options.block));
    model.set_residual_streams(std::max(plan_.Residuals(Stack::kEncoder), plan_.Residuals(Stack::kDecoder)));
    model.set_residual_mixing(ResidualMixing(plan_.options));
    for (const int32_t id : plan_.options.adaptive_cutoffs.span()) model.add_adaptive_cutoffs(id);
    if (plan_.options.reads_speech()) {
      model.set_frame_width(plan_.options.frame_width);
      model.set_front_end_channels(plan_.options.front_end_channels);
    }
    model.set_source_vocabulary(plan_.options.source_vocabulary);
    model.set_target_vocabulary(plan_.options.target_vocabulary);
    model.set_sublayers(static_cast<int32_t>(plan_.sublayers.size()));
    model.set_parameters(plan_.ParameterElements());
  }

  absl::StatusOr<Rounds> MeasureCapacity(const BatchOptions& batch) {
    HADAL_ASSIGN_OR_RETURN(
        SamplingOrder order,
        SamplingOrder::Create(corpus_, {.seed = options_.train.seed,
                                        .capacity = {.source_rows = batch.source_tokens,
                                                     .target_rows = batch.target_tokens,
                                                     .sentence_rows = plan_.options.max_positions},
                                        .micro_batches_per_step = std::min(kMostMicroBatches, batch.micro_batches),
                                        .masking = options_.train.masking}));
    StepBatches step;
    HADAL_RETURN_IF_ERROR(order.Next(0, step));
    const int32_t every = options_.train.pipeline.recompute_every;
    absl::StatusOr<Rounds> plain = MeasureStage(step.micro_batches, batch, 0);
    HADAL_RETURN_IF_ERROR(plain.status());
    HADAL_ASSIGN_OR_RETURN(const Rounds recomputed,
                           MeasureStage(step.micro_batches, batch, every > 0 ? every : kUsualSegment));
    config::CapacityCosts& costs = *profile_.add_capacities();
    costs.set_source_tokens(CapacityOf(plan_.options, batch).source_rows);
    costs.set_target_tokens(batch.target_tokens);
    const double count = static_cast<double>(step.micro_batches.size());
    costs.set_source_rows(static_cast<double>(step.source_tokens) / count);
    costs.set_target_rows(static_cast<double>(step.target_tokens) / count);
    for (const auto& [kind, seconds] : plain->kinds) {
      const SublayerSeconds& again = recomputed.kinds.at(kind);
      HADAL_ASSIGN_OR_RETURN(
          const std::vector<double> mean,
          MeanOverRanks(world_, {seconds.forward, seconds.backward, again.forward, again.recompute, again.backward}));
      config::SublayerCost& cost = *costs.add_sublayers();
      cost.set_kind(kind);
      cost.set_forward_ms(Rounded(1e3 * mean[0]));
      cost.set_backward_ms(Rounded(1e3 * mean[1]));
      cost.set_recomputed_forward_ms(Rounded(1e3 * mean[2]));
      cost.set_recompute_ms(Rounded(1e3 * mean[3]));
      cost.set_recomputed_backward_ms(Rounded(1e3 * mean[4]));
    }
    return plain;
  }

  absl::StatusOr<Rounds> MeasureStage(const std::vector<PackedBatch>& batches, const BatchOptions& batch,
                                      int32_t recompute_every) {
    return StageProfile(plan_, batches, batch, recompute_every, stream_).Measure(options_.rounds, world_);
  }

  const BenchProfileOptions& options_;
  const Corpus& corpus_;
  Communicator& communicator_;
  Collectives world_;
  const Stream stream_;
  const ModelPlan plan_;
  config::Profile profile_;
};

}  // namespace

ModelOptions ShallowModel(const ModelOptions& model, int64_t elements) {
  ModelOptions shallow = model;
  for (int32_t layers = 2;; layers *= 2) {
    shallow.encoder_layers = std::min(model.encoder_layers, layers);
    shallow.decoder_layers = std::min(model.decoder_layers, layers);
    const bool whole = layers >= std::max(model.encoder_layers, model.decoder_layers);
    if (whole || ModelPlan::Make(shallow).ParameterElements() >= elements) return shallow;
  }
}

absl::StatusOr<config::Profile> MeasureProfile(const BenchProfileOptions& options, const Corpus& corpus,
                                               Communicator& communicator, const Stream& stream) {
  return ProfileBench(options, corpus, communicator, stream).Measure();
}

}  // namespace hadal
