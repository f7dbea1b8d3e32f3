#include "tools/plan/layout_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/schedule/partition.h"
#include "runtime/status_macros.h"
#include "tools/plan/layout_estimate.h"

namespace hadal {
namespace {

constexpr int kChunks[] = {1, 2, 3, 4, 6, 8};
constexpr int kMostHalvings = 3;
constexpr double kGib = 1 << 30;
// The exact bytes are between these multiples of the estimate (a test checks this).
constexpr double kSurelyTooLarge = 0.7, kSurelyFits = 1.5;

// The same step in micro-batches of other sizes.
std::vector<BatchOptions> Batches(const ModelOptions& model, const BatchOptions& batch, bool vary) {
  std::vector<BatchOptions> batches{batch};
  const int32_t source = model.has_encoder() ? batch.source_tokens : batch.target_tokens;
  const int32_t least = std::min({model.max_positions, source, batch.target_tokens});
  for (int i = 1; vary && i <= kMostHalvings; ++i) {
    const int32_t factor = 1 << i;
    if (source % factor == 0 && batch.target_tokens % factor == 0 && source / factor >= least &&
        batch.target_tokens / factor >= least) {
      batches.push_back({batch.micro_batches * factor, batch.source_tokens / factor, batch.target_tokens / factor});
    }
    if (batch.micro_batches % factor == 0) {
      batches.push_back({batch.micro_batches / factor, batch.source_tokens * factor, batch.target_tokens * factor});
    }
  }
  return batches;
}

bool FillsNodes(int replicas, int devices_per_node) {
  return replicas % devices_per_node == 0 || devices_per_node % replicas == 0;
}

int64_t LegalCuts(const ModelPlan& model) {
  return std::count_if(model.sublayers.begin(), model.sublayers.end(),
                       [](const SublayerRecord& sublayer) { return sublayer.cut_before != 0; });
}

using Shape = std::tuple<int, int, int, int, bool>;  // the properties in which listed layouts differ
Shape ShapeOf(const LayoutPrediction& layout) {
  return {layout.pipeline.stages, layout.pipeline.chunks, layout.pipeline.replicas, layout.batch.micro_batches,
          layout.pipeline.recompute_every > 0};
}

class Search {
 public:
  Search(const ModelPlan& model, const TrainOptions& options, const Machine& machine, const StepCosts& costs,
         int threads, const SearchOptions& search)
      : model_(model),
        options_(options),
        machine_(machine),
        costs_(costs),
        search_(search),
        layout_machine_{costs, machine.devices_per_node, machine.precision, threads},
        estimate_(model, layout_machine_) {}

  absl::StatusOr<LayoutSearch> Run();

 private:
  enum class Known { kShare, kCut, kExact };
  struct Entry {
    double seconds = 0;  // bound, or exact
    int64_t order = 0;   // ties: in order of enumeration
    Known known = Known::kShare;
    std::shared_ptr<LayoutPrediction> layout;
    bool operator<(const Entry& other) const {
      return std::tie(seconds, order) > std::tie(other.seconds, other.order);  // priority_queue: the smallest first
    }
  };

  absl::StatusOr<double> ShareBound(const LayoutPrediction& layout);
  double CutBound(const LayoutPrediction& layout, const std::vector<int32_t>& borders);
  double TailBound(const LayoutPrediction& layout) const;
  absl::StatusOr<PipelinePlan> ProgramsOf(const LayoutPrediction& layout, const std::vector<int32_t>& borders);
  double MessageBound(const LayoutPrediction& layout, int stage) const;
  // The borders for this many pieces; nullopt if the model cannot be cut so.
  const std::vector<int32_t>* Borders(const PipelineOptions& pipeline);
  absl::StatusOr<const std::vector<SublayerSeconds>*> Seconds(const BatchOptions& batch, bool recompute);
  // Refines one entry by one level; a null layout drops it.
  absl::Status Refine(Entry& entry);
  absl::Status Exhausted();
  void NoteTooLarge(const LayoutPrediction& layout, int64_t bytes);

  const ModelPlan& model_;
  const TrainOptions& options_;
  const Machine& machine_;
  const StepCosts& costs_;
  const SearchOptions search_;
  const LayoutMachine layout_machine_;
  LayoutEstimate estimate_;
  std::map<int, std::optional<std::vector<int32_t>>> borders_;                           // by pieces
  std::map<std::pair<int, bool>, std::optional<std::vector<SublayerSeconds>>> seconds_;  // by M, recompute
  LayoutSearch result_;
  std::optional<LayoutPrediction> smallest_;  // of the layouts that did not fit
  int64_t smallest_bytes_ = std::numeric_limits<int64_t>::max();
};

absl::StatusOr<const std::vector<SublayerSeconds>*> Search::Seconds(const BatchOptions& batch, bool recompute) {
  const std::pair key(batch.micro_batches, recompute);
  auto found = seconds_.find(key);
  if (found == seconds_.end()) {
    absl::StatusOr<std::vector<SublayerSeconds>> seconds =
        costs_.Sublayers(model_, CapacityOf(model_.options, batch), recompute);
    if (!seconds.ok() && !absl::IsNotFound(seconds.status())) return seconds.status();
    if (!seconds.ok() && batch.micro_batches == options_.batch.micro_batches) return seconds.status();
    found = seconds_.emplace(key, seconds.ok() ? std::optional(*std::move(seconds)) : std::nullopt).first;
  }
  return found->second ? &*found->second : nullptr;
}

const std::vector<int32_t>* Search::Borders(const PipelineOptions& pipeline) {
  const int pieces = pipeline.stages * pipeline.chunks;
  auto found = borders_.find(pieces);
  if (found == borders_.end()) {
    // A micro-batch's size scales all costs equally, so one cut serves all sizes.
    PartitionProblem problem{
        .stages = pieces,
        .cost = SublayerCosts(model_, CapacityOf(model_.options, options_.batch), kTypicalSentenceRows)};
    for (const SublayerRecord& sublayer : model_.sublayers) {
      problem.cut_allowed_before.push_back(sublayer.cut_before != 0);
    }
    absl::StatusOr<std::vector<int32_t>> borders = MakePartition(problem);
    found = borders_.emplace(pieces, borders.ok() ? std::optional(*std::move(borders)) : std::nullopt).first;
  }
  return found->second ? &*found->second : nullptr;
}

absl::StatusOr<double> Search::ShareBound(const LayoutPrediction& layout) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<SublayerSeconds>* seconds,
                         Seconds(layout.batch, layout.pipeline.recompute_every > 0));
  if (seconds == nullptr) return std::numeric_limits<double>::infinity();
  double all = 0;
  for (const SublayerSeconds& sublayer : *seconds) all += sublayer.sum();
  const int share = ShareOf(layout.batch.micro_batches, layout.pipeline.replicas, 0).count;
  result_.roofline_seconds = std::min(result_.roofline_seconds, all * layout.batch.micro_batches / layout.ranks());
  return all * std::max(1.0, static_cast<double>(share) / layout.pipeline.stages);
}

double Search::CutBound(const LayoutPrediction& layout, const std::vector<int32_t>& borders) {
  const std::vector<SublayerSeconds>& seconds =
      *seconds_.at({layout.batch.micro_batches, layout.pipeline.recompute_every > 0});
  const int stages = layout.pipeline.stages, chunks = layout.pipeline.chunks;
  const int share = ShareOf(layout.batch.micro_batches, layout.pipeline.replicas, 0).count;
  double before = 0, bound = 0;  // before: the first chunks of earlier stages
  for (int stage = 0; stage < stages; ++stage) {
    double busy = 0, first = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      double work = 0;
      for (int32_t s = borders[chunk * stages + stage]; s < borders[chunk * stages + stage + 1]; ++s) {
        work += seconds[s].sum();
      }
      busy += work;
      if (chunk == 0) first = work;
    }
    bound = std::max(bound, share * busy + before);
    before += first;
    if (stage + 1 < stages) before += 2 * MessageBound(layout, stage);
  }
  return bound + TailBound(layout);
}

// Lower bound of the time after the last backward: gathering and updating weights, with stages of equal size.
double Search::TailBound(const LayoutPrediction& layout) const {
  const double elements = static_cast<double>(model_.ParameterElements()) / layout.pipeline.stages;
  const bool shards = layout.pipeline.shard_optimizer_state;
  const double updated = shards ? elements / layout.pipeline.replicas : elements;
  const double weight_bytes = shards && machine_.precision == Precision::kBf16 ? 2 : 4;
  return costs_.UpdateSeconds(elements, updated) +
         ExchangeSeconds(weight_bytes * elements, layout.pipeline.replicas, layout_machine_);
}

// A message has at least one edge of the smaller side.
double Search::MessageBound(const LayoutPrediction& layout, int stage) const {
  const LinkRate link = costs_.Link(LeavesNode(stage, stage + 1, layout.pipeline.replicas, layout_machine_));
  const ActivationCapacity capacity = CapacityOf(model_.options, layout.batch);
  const int64_t rows =
      model_.options.has_encoder() ? std::min(capacity.source_rows, capacity.target_rows) : capacity.target_rows;
  const int64_t bytes = rows * model_.options.d_model * ResidualBytes(model_.options, machine_.precision);
  return link.HeldSeconds(static_cast<double>(bytes)) + link.latency_seconds;
}

void Search::NoteTooLarge(const LayoutPrediction& layout, int64_t bytes) {
  ++result_.too_large;
  if (bytes >= smallest_bytes_) return;
  smallest_bytes_ = bytes;
  smallest_ = layout;
}

// The parts of MakePipelinePlan's plan that a replay reads, without its proofs and replay: the schedules are proven for
// all shapes.
absl::StatusOr<PipelinePlan> Search::ProgramsOf(const LayoutPrediction& layout, const std::vector<int32_t>& borders) {
  PipelinePlan plan{.grid = {layout.pipeline.stages, layout.pipeline.replicas},
                    .shard_optimizer_state = layout.pipeline.shard_optimizer_state,
                    .step_micro_batches = layout.batch.micro_batches,
                    .schedule = layout.pipeline.schedule,
                    .outstanding_sends = layout.pipeline.outstanding_sends,
                    .save_buffer_bytes = layout.pipeline.save_buffer_bytes,
                    .capacity = CapacityOf(model_.options, layout.batch),
                    .recompute_every = layout.pipeline.recompute_every,
                    .borders = borders};
  plan.shape = {layout.pipeline.stages, layout.pipeline.chunks, plan.share().count};
  HADAL_ASSIGN_OR_RETURN(plan.programs, MakeSchedules(plan.schedule, plan.shape));
  return plan;
}

absl::Status Search::Refine(Entry& entry) {
  LayoutPrediction& layout = *entry.layout;
  const std::vector<int32_t>* borders = Borders(layout.pipeline);
  if (borders == nullptr) {
    entry.layout = nullptr;
    return absl::OkStatus();
  }
  if (entry.known == Known::kShare) {
    const int64_t bytes = estimate_.Bytes(layout, *borders);
    if (kSurelyTooLarge * static_cast<double>(bytes) > static_cast<double>(machine_.memory_bytes)) {
      NoteTooLarge(layout, bytes);
      entry.layout = nullptr;
      return absl::OkStatus();
    }
    entry.known = Known::kCut;
    entry.seconds = std::max(entry.seconds, CutBound(layout, *borders));
    return absl::OkStatus();
  }
  PipelineOptions pipeline = layout.pipeline;
  pipeline.split.assign(borders->begin() + 1, borders->end() - 1);
  ++result_.replayed;
  if (kSurelyFits * static_cast<double>(estimate_.Bytes(layout, *borders)) >
      static_cast<double>(machine_.memory_bytes)) {
    HADAL_ASSIGN_OR_RETURN(const PipelinePlan whole, MakePipelinePlan(model_, layout.batch, pipeline, layout.ranks()));
    layout.stages = MemoryOfStages(model_, whole, layout_machine_);
    if (layout.FullestBytes() > machine_.memory_bytes) {
      NoteTooLarge(layout, layout.FullestBytes());
      entry.layout = nullptr;
      return absl::OkStatus();
    }
  }
  HADAL_ASSIGN_OR_RETURN(const PipelinePlan plan, ProgramsOf(layout, *borders));
  HADAL_ASSIGN_OR_RETURN(LayoutPrediction exact,
                         PredictPlan(model_, layout.batch, plan, layout_machine_, PredictionDetail::kStep));
  entry.known = Known::kExact;
  entry.seconds = exact.step_seconds;
  layout = std::move(exact);
  return absl::OkStatus();
}

absl::Status Search::Exhausted() {
  if (!smallest_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no layout of ", machine_.devices(), " devices divides this model of ", model_.sublayers.size(),
        " sublayers and ", options_.batch.micro_batches, " micro-batch(es); use fewer devices or more micro-batches"));
  }
  const auto gib = [](int64_t bytes) { return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGib); };
  std::string text = absl::StrFormat(
      "no layout of this run fits %d device(s) of %s. The smallest, %d stages x %d replicas, micro-batches of %d "
      "target "
      "tokens, recompute every %d, needs %s on its fullest device.",
      machine_.devices(), gib(machine_.memory_bytes), smallest_->pipeline.stages, smallest_->pipeline.replicas,
      smallest_->batch.target_tokens, smallest_->pipeline.recompute_every, gib(smallest_bytes_));
  constexpr int kMostNodes = 4096;
  Machine larger = machine_;
  for (larger.nodes *= 2; larger.nodes <= kMostNodes; larger.nodes *= 2) {
    if (!estimate_.AnyFits(LayoutCandidates(model_, options_, larger, search_), larger.memory_bytes)) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat(text, " About ", larger.nodes, " nodes of ", larger.devices_per_node, " would fit it."));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      text, " More nodes would not help: use smaller micro-batches (batch.target_tokens) or larger devices."));
}

absl::StatusOr<LayoutSearch> Search::Run() {
  std::priority_queue<Entry> queue;
  result_.roofline_seconds = std::numeric_limits<double>::infinity();
  for (const LayoutPrediction& candidate : LayoutCandidates(model_, options_, machine_, search_)) {
    auto layout = std::make_shared<LayoutPrediction>(candidate);
    if (layout->pipeline.recompute_every > 0) layout->pipeline.recompute_every = estimate_.BestSegment(*layout);
    HADAL_ASSIGN_OR_RETURN(const double bound, ShareBound(*layout));
    if (bound == std::numeric_limits<double>::infinity()) continue;  // no costs for such micro-batches
    queue.push({bound, result_.candidates++, Known::kShare, std::move(layout)});
  }
  std::vector<Shape> listed;
  while (!queue.empty() && std::ssize(result_.best) < search_.top) {
    Entry entry = queue.top();
    queue.pop();
    const Shape shape = ShapeOf(*entry.layout);
    if (std::find(listed.begin(), listed.end(), shape) != listed.end()) continue;
    if (entry.known == Known::kExact) {
      listed.push_back(shape);
      result_.best.push_back(*std::move(entry.layout));
      continue;
    }
    HADAL_RETURN_IF_ERROR(Refine(entry));
    if (entry.layout != nullptr) queue.push(std::move(entry));
  }
  if (result_.best.empty()) return Exhausted();
  for (LayoutPrediction& layout : result_.best) {
    HADAL_ASSIGN_OR_RETURN(layout, PredictLayout(model_, layout.batch, layout.pipeline, layout_machine_));
  }
  result_.operations = StepOperations(model_, options_.batch);
  result_.perfect_seconds = result_.operations / (costs_.peak_flops() * machine_.devices());
  return std::move(result_);
}

}  // namespace

double StepOperations(const ModelPlan& model, const BatchOptions& batch) {
  double products = 0;
  for (const double cost : SublayerCosts(model, CapacityOf(model.options, batch), kTypicalSentenceRows))
    products += cost;
  constexpr double kOperations = 2, kPasses = 3;  // a multiply-add; forward, and two products backward
  return kOperations * kPasses * products * batch.micro_batches;
}

std::vector<LayoutPrediction> LayoutCandidates(const ModelPlan& model, const TrainOptions& options,
                                               const Machine& machine, const SearchOptions& search) {
  std::vector<LayoutPrediction> candidates;
  const int64_t cuts = LegalCuts(model);
  for (const BatchOptions& batch : Batches(model.options, options.batch, search.vary_micro_batch)) {
    for (int replicas = 1; replicas <= std::min(machine.devices(), batch.micro_batches); ++replicas) {
      const int stages = machine.devices() / replicas;
      if (stages * replicas != machine.devices() || !FillsNodes(replicas, machine.devices_per_node)) continue;
      for (const int chunks : kChunks) {
        if (int64_t{stages} * chunks > cuts || (chunks > 1 && stages == 1)) continue;
        for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kInterleaved1F1B, ScheduleKind::kGpipe}) {
          if ((kind == ScheduleKind::kInterleaved1F1B) != (chunks > 1)) continue;
          for (const bool shard : {true, false}) {
            if (!shard && replicas == 1) continue;
            for (const int recompute_every : {0, 1}) {
              LayoutPrediction layout{.batch = batch, .pipeline = options.pipeline};
              layout.pipeline.stages = stages;
              layout.pipeline.replicas = replicas;
              layout.pipeline.chunks = chunks;
              layout.pipeline.schedule = kind;
              layout.pipeline.shard_optimizer_state = shard;
              layout.pipeline.recompute_every = recompute_every;
              layout.pipeline.recompute_auto = false;
              layout.pipeline.split.clear();
              candidates.push_back(std::move(layout));
            }
          }
        }
      }
    }
  }
  return candidates;
}

absl::StatusOr<LayoutSearch> SearchLayouts(const ModelPlan& model, const TrainOptions& options, const Machine& machine,
                                           const StepCosts& costs, int threads, const SearchOptions& search) {
  return Search(model, options, machine, costs, threads, search).Run();
}

}  // namespace hadal
