#include "tools/bench_step.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/engine.h"
#include "pipeline/memory_fit.h"
#include "pipeline/parameter_broadcast.h"
#include "pipeline/pipeline_plan.h"
#include "runtime/host_memory.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"
#include "tools/gemm_limit.h"

namespace hadal {

ModelOptions BenchModel(const BenchStepOptions& options) {
  ModelOptions model{.encoder_layers = options.encoder_layers,
                     .decoder_layers = options.decoder_layers,
                     .d_model = options.d_model,
                     .d_ff = options.d_ff > 0 ? options.d_ff : 4 * options.d_model,
                     .heads = options.heads,
                     .source_vocabulary = options.vocabulary,
                     .target_vocabulary = options.vocabulary,
                     .max_positions = std::max(16, 2 * options.length),
                     .dropout = options.dropout,
                     .attention_dropout = options.dropout,
                     .activation_dropout = options.dropout};
  ApplyResidualMethod(options.method, model);
  return model;
}

namespace {

constexpr absl::Duration kTimeout = absl::Minutes(30);
constexpr int kWarmUpSteps = 2;
constexpr double kGib = 1 << 30;

double Median(std::vector<double> values) {
  HADAL_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Rows of each sentence, in all `options.tokens`.
std::vector<int32_t> SentenceLengths(const BenchStepOptions& options, int32_t micro_batch) {
  std::vector<int32_t> lengths;
  int32_t left = options.tokens;
  for (uint64_t i = 0; left > 0; ++i) {
    int32_t length = options.length;
    if (options.mixed_length) {
      const double u = UniformAt(/*seed=*/1, RandomSite::kSampling, micro_batch, i);
      length = 4 + static_cast<int32_t>(u * (2 * options.length - 7));
    }
    lengths.push_back(std::min(length, left));
    left -= lengths.back();
  }
  return lengths;
}

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

PackedBatch RandomBatch(const BenchStepOptions& options, int32_t micro_batch) {
  const auto tokens = [&](uint32_t stream) {
    std::vector<int32_t> row(options.tokens);
    for (size_t i = 0; i < row.size(); ++i) {
      const double u = UniformAt(/*seed=*/2, RandomSite::kSampling, 4 * micro_batch + stream, i);
      row[i] = kSpecialTokens + static_cast<int32_t>(u * (options.vocabulary - kSpecialTokens));
    }
    return row;
  };
  std::vector<int32_t> lengths = SentenceLengths(options, micro_batch);
  PackedBatch batch{.micro_batch = micro_batch,
                    .source = tokens(0),
                    .target_input = tokens(1),
                    .target = tokens(2),
                    .target_offsets = OffsetsOf(lengths)};
  std::reverse(lengths.begin(), lengths.end());  // so that pairs differ in length where lengths are mixed
  batch.source_offsets = OffsetsOf(lengths);
  batch.samples.resize(lengths.size());
  return batch;
}

// What the pairs of step and limit took, on every rank.
struct Measured {
  std::vector<double> step_seconds;              // [repeats] the slowest rank's
  std::vector<double> own_limit, library_limit;  // [repeats] the ranks' mean, by threading
  std::vector<double> own_attention, library_attention;
  std::vector<std::vector<double>> parts[7];                    // [part][rank][repeats]
  double flops = 0;                                             // of all ranks
  std::vector<double> launches;                                 // [ranks] of the last step, on a device
  std::vector<double> peak_rss_bytes, arena_bytes, plan_bytes;  // [ranks]
};

constexpr const char* kPartNames[7] = {"forward",       "recompute", "backward", "wait",
                                       "communication", "optimizer", "other"};

class StepBench {
 public:
  StepBench(const BenchStepOptions& options, Communicator& communicator, const Stream& stream)
      : options_(options),
        communicator_(communicator),
        collectives_(communicator, kTimeout),
        stream_(stream),
        plan_(ModelPlan::Make(BenchModel(options))) {
    plan_.compute_storage = options.compute_storage;
  }

  absl::StatusOr<Measured> Measure();
  const ModelPlan& plan() const { return plan_; }
  const PipelinePlan& pipeline() const { return pipeline_; }
  int64_t target_tokens() const { return int64_t{options_.tokens} * options_.micro_batches; }

 private:
  absl::Status Prepare();
  absl::StatusOr<StepResult> Step();
  absl::StatusOr<std::vector<double>> Gather(double value);
  absl::Status MeasureStep(Measured& measured);
  absl::Status MeasureLimit(GemmLimit& limit, ProductThreading threading, std::vector<double>& seconds,
                            std::vector<double>& attention);
  absl::Status MeasureMemory(Measured& measured);

  const BenchStepOptions& options_;
  Communicator& communicator_;
  Collectives collectives_;
  Stream stream_;
  ModelPlan plan_;
  PipelinePlan pipeline_;
  std::unique_ptr<Engine> engine_;
  std::vector<PackedBatch> batches_;
  int64_t steps_ = 0;
};

absl::Status StepBench::Prepare() {
  HADAL_ASSIGN_OR_RETURN(pipeline_, MakePipelinePlan(plan_,
                                                     {.micro_batches = options_.micro_batches,
                                                      .source_tokens = options_.tokens,
                                                      .target_tokens = options_.tokens},
                                                     {.chunks = options_.chunks,
                                                      .schedule = options_.schedule,
                                                      .checkpoint_every = options_.checkpoint_every,
                                                      .graphs = options_.graphs},
                                                     communicator_.size()));
  HADAL_ASSIGN_OR_RETURN(engine_,
                         Engine::Create(plan_, pipeline_, stream_, /*training=*/true, communicator_, kTimeout));
  HADAL_RETURN_IF_ERROR(
      InitializeParameters(pipeline_, engine_->stage().parameters(), /*seed=*/1, stream_, communicator_, kTimeout));
  HADAL_RETURN_IF_ERROR(engine_->ShareTiedWeights());
  for (int32_t m = 0; m < options_.micro_batches; ++m) batches_.push_back(RandomBatch(options_, m));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> StepBench::Step() {
  const StepScalars scalars{
      .seed = 1, .step = steps_, .update = steps_ + 1, .gradient_scale = 1.0f / static_cast<float>(target_tokens())};
  ++steps_;
  HADAL_RETURN_IF_ERROR(collectives_.Barrier("before a step"));
  HADAL_ASSIGN_OR_RETURN(
      const StepResult result,
      engine_->TrainingStep(batches_, scalars, {.optimizer = {.clip_norm = 1}, .learning_rate = 1e-5}));
  if (!result.applied) return absl::InternalError("the model diverged while it was measured");
  return result;
}

absl::StatusOr<std::vector<double>> StepBench::Gather(double value) {
  const double mine[] = {value};
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives_.AllGather(mine, "a measurement"));
  std::vector<double> values;
  for (const std::vector<double>& of_rank : all) values.push_back(of_rank[0]);
  return values;
}

absl::Status StepBench::MeasureStep(Measured& measured) {
  HADAL_ASSIGN_OR_RETURN(const StepResult result, Step());
  HADAL_ASSIGN_OR_RETURN(const std::vector<double> seconds, Gather(result.seconds));
  measured.step_seconds.push_back(*std::max_element(seconds.begin(), seconds.end()));
  const StageTimes& t = result.times;
  double parts[7] = {t.forward_seconds,
                     t.recompute_seconds,
                     t.backward_seconds,
                     t.wait_seconds,
                     t.communication_seconds,
                     t.optimizer_seconds,
                     0};
  parts[6] = result.seconds - std::accumulate(parts, parts + 6, 0.0);
  for (int p = 0; p < 7; ++p) {
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> of_ranks, Gather(parts[p]));
    measured.parts[p].resize(of_ranks.size());
    for (size_t r = 0; r < of_ranks.size(); ++r) measured.parts[p][r].push_back(of_ranks[r]);
  }
  HADAL_ASSIGN_OR_RETURN(measured.launches, Gather(t.launches));
  return absl::OkStatus();
}

absl::Status StepBench::MeasureLimit(GemmLimit& limit, ProductThreading threading, std::vector<double>& seconds,
                                     std::vector<double>& attention) {
  HADAL_RETURN_IF_ERROR(collectives_.Barrier("before the GEMM limit"));
  const GemmLimitTimes times = limit.Run(threading);
  HADAL_ASSIGN_OR_RETURN(const std::vector<double> all, Gather(times.seconds));
  HADAL_ASSIGN_OR_RETURN(const std::vector<double> all_attention, Gather(times.attention_seconds));
  const double ranks = communicator_.size();
  seconds.push_back(std::accumulate(all.begin(), all.end(), 0.0) / ranks);
  attention.push_back(std::accumulate(all_attention.begin(), all_attention.end(), 0.0) / ranks);
  return absl::OkStatus();
}

absl::Status StepBench::MeasureMemory(Measured& measured) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<ArenaLayout> layouts, TrainingLayouts(plan_, pipeline_, stream_));
  HADAL_ASSIGN_OR_RETURN(measured.peak_rss_bytes, Gather(static_cast<double>(PeakResidentBytes())));
  HADAL_ASSIGN_OR_RETURN(measured.arena_bytes, Gather(static_cast<double>(engine_->arena_bytes())));
  HADAL_ASSIGN_OR_RETURN(measured.plan_bytes, Gather(static_cast<double>(layouts[communicator_.rank()].total_bytes())));
  return absl::OkStatus();
}

absl::StatusOr<Measured> StepBench::Measure() {
  HADAL_RETURN_IF_ERROR(Prepare());
  Measured measured;
  for (int i = 0; i < kWarmUpSteps; ++i) HADAL_RETURN_IF_ERROR(Step().status());
  HADAL_RETURN_IF_ERROR(MeasureMemory(measured));  // before the limit's own memory counts
  std::unique_ptr<GemmLimit> limit;
  if (options_.limit) {
    HADAL_ASSIGN_OR_RETURN(limit, GemmLimit::Create(plan_, pipeline_, communicator_.rank(), batches_, stream_));
    limit->Run(ProductThreading::kOwnRows);
    limit->Run(ProductThreading::kLibrary);
    HADAL_ASSIGN_OR_RETURN(const std::vector<double> flops, Gather(limit->flops()));
    measured.flops = std::accumulate(flops.begin(), flops.end(), 0.0);
  }
  for (int i = 0; i < options_.repeats; ++i) {
    HADAL_RETURN_IF_ERROR(MeasureStep(measured));
    if (limit == nullptr) continue;
    HADAL_RETURN_IF_ERROR(MeasureLimit(*limit, ProductThreading::kOwnRows, measured.own_limit, measured.own_attention));
    HADAL_RETURN_IF_ERROR(
        MeasureLimit(*limit, ProductThreading::kLibrary, measured.library_limit, measured.library_attention));
  }
  return measured;
}

// The faster of the two ways to split the products is the limit.
struct Limit {
  bool own_rows = true;
  double seconds = 0, attention_seconds = 0;
  std::vector<double> shares;  // limit / step, pair by pair
};

Limit LimitOf(const Measured& measured) {
  Limit limit;
  limit.own_rows = Median(measured.own_limit) <= Median(measured.library_limit);
  const std::vector<double>& seconds = limit.own_rows ? measured.own_limit : measured.library_limit;
  limit.seconds = Median(seconds);
  limit.attention_seconds = Median(limit.own_rows ? measured.own_attention : measured.library_attention);
  for (size_t i = 0; i < seconds.size(); ++i) limit.shares.push_back(seconds[i] / measured.step_seconds[i]);
  std::sort(limit.shares.begin(), limit.shares.end());
  return limit;
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.1f ms", 1e3 * seconds); }

std::string MemoryLine(const Measured& measured, size_t rank) {
  return absl::StrFormat("memory of rank %d: peak RSS %.3f GiB, arena %.3f GiB (%d bytes, plan %s)\n", rank,
                         measured.peak_rss_bytes[rank] / kGib, measured.arena_bytes[rank] / kGib,
                         static_cast<int64_t>(measured.arena_bytes[rank]),
                         measured.arena_bytes[rank] == measured.plan_bytes[rank] ? "equal" : "DIFFERS");
}

void PrintText(const BenchStepOptions& options, const StepBench& bench, const Measured& measured, const Stream& stream,
               std::ostream& out) {
  const ModelOptions& model = bench.plan().options;
  const double step = Median(measured.step_seconds);
  out << absl::StrFormat("%s %dL-%dL, d_model %d, d_ff %d, heads %d, vocabulary %d: %d parameters\n",
                         ResidualMethodName(options.method), model.encoder_layers, model.decoder_layers, model.d_model,
                         model.d_ff, model.heads, options.vocabulary, bench.plan().ParameterElements());
  out << absl::StrFormat(
      "%d rank(s) x %d thread(s), %s, %d micro-batch(es) of %d target tokens, sentences of %s%d, dropout %g, "
      "checkpoint_every %d\n",
      bench.pipeline().shape.stages, stream.threads(), ToString(options.schedule), options.micro_batches,
      options.tokens, options.mixed_length ? "mixed length around " : "", options.length, options.dropout,
      options.checkpoint_every);
  out << absl::StrFormat("step:       %s median of %d (best %s), %.0f target tokens/s\n", Milliseconds(step),
                         measured.step_seconds.size(),
                         Milliseconds(*std::min_element(measured.step_seconds.begin(), measured.step_seconds.end())),
                         static_cast<double>(bench.target_tokens()) / step);
  for (size_t r = 0; r < measured.parts[0].size(); ++r) {
    out << absl::StrFormat("  rank %d:  ", r);
    for (int p = 0; p < 7; ++p)
      out << absl::StrFormat(" %s %s", kPartNames[p], Milliseconds(Median(measured.parts[p][r])));
    if (stream.device() != nullptr) out << absl::StrFormat(", %.0f launches", measured.launches[r]);
    out << "\n";
  }
  if (options.limit) {
    const Limit limit = LimitOf(measured);
    out << absl::StrFormat("GEMM limit: %s (attention %s; %.1f GFLOP at %.0f GFLOP/s; %s, the other way %s)\n",
                           Milliseconds(limit.seconds), Milliseconds(limit.attention_seconds), 1e-9 * measured.flops,
                           1e-9 * measured.flops / limit.seconds,
                           limit.own_rows ? "each thread its own rows" : "the library's threads",
                           Milliseconds(Median(limit.own_rows ? measured.library_limit : measured.own_limit)));
    out << absl::StrFormat("share:      %.1f%% of the GEMM limit (median of %d pairs; %.1f%% to %.1f%%)\n",
                           100 * Median(limit.shares), limit.shares.size(), 100 * limit.shares.front(),
                           100 * limit.shares.back());
  }
  for (size_t r = 0; r < measured.arena_bytes.size(); ++r) out << MemoryLine(measured, r);
}

void PrintJson(const BenchStepOptions& options, const StepBench& bench, const Measured& measured, const Stream& stream,
               std::ostream& out) {
  const ModelOptions& model = bench.plan().options;
  const double step = Median(measured.step_seconds);
  nlohmann::ordered_json json{{"method", ResidualMethodName(options.method)},
                              {"encoder_layers", model.encoder_layers},
                              {"decoder_layers", model.decoder_layers},
                              {"d_model", model.d_model},
                              {"d_ff", model.d_ff},
                              {"heads", model.heads},
                              {"vocabulary", options.vocabulary},
                              {"parameters", bench.plan().ParameterElements()},
                              {"ranks", bench.pipeline().shape.stages},
                              {"threads", stream.threads()},
                              {"micro_batches", options.micro_batches},
                              {"target_tokens", bench.target_tokens()},
                              {"length", options.length},
                              {"mixed_length", options.mixed_length},
                              {"dropout", options.dropout},
                              {"checkpoint_every", options.checkpoint_every},
                              {"step_seconds", measured.step_seconds},
                              {"step_seconds_median", step},
                              {"target_tokens_per_second", static_cast<double>(bench.target_tokens()) / step}};
  for (int p = 0; p < 7; ++p) {
    nlohmann::ordered_json& of_ranks = json[absl::StrCat(kPartNames[p], "_seconds")];
    for (const std::vector<double>& of_rank : measured.parts[p]) of_ranks.push_back(Median(of_rank));
  }
  if (stream.device() != nullptr) json["launches"] = measured.launches;
  json["peak_rss_bytes"] = measured.peak_rss_bytes;
  json["arena_bytes"] = measured.arena_bytes;
  json["plan_bytes"] = measured.plan_bytes;
  if (options.limit) {
    const Limit limit = LimitOf(measured);
    json["gemm_limit_seconds"] = limit.seconds;
    json["gemm_limit_attention_seconds"] = limit.attention_seconds;
    json["gemm_limit_threading"] = limit.own_rows ? "own_rows" : "library";
    json["gemm_limit_own_rows_seconds"] = measured.own_limit;
    json["gemm_limit_library_seconds"] = measured.library_limit;
    json["gemm_flops"] = measured.flops;
    json["share_of_gemm_limit"] = Median(limit.shares);
  }
  out << json.dump(2) << "\n";
}

}  // namespace

absl::Status RunBenchStep(const BenchStepOptions& options, Communicator& communicator, const Stream& stream,
                          std::ostream& out) {
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(BenchModel(options)));
  StepBench bench(options, communicator, stream);
  HADAL_ASSIGN_OR_RETURN(const Measured measured, bench.Measure());
  if (communicator.rank() != 0) return absl::OkStatus();
  (options.json ? PrintJson : PrintText)(options, bench, measured, stream, out);
  return absl::OkStatus();
}

}  // namespace hadal
