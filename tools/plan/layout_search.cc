#include "tools/plan/layout_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "layers/device_support.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/schedule/partition.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"
#include "tools/output/human_units.h"
#include "tools/plan/layout_bounds.h"

namespace hadal {
namespace {

using LayoutShape = std::tuple<int, int, int, int, bool>;  // the properties in which listed layouts differ
LayoutShape ShapeOf(const LayoutPrediction& layout) {
  return {layout.pipeline.stages, layout.pipeline.chunks, layout.pipeline.replicas, layout.batch.micro_batches,
          layout.pipeline.recompute_every != 0};
}

constexpr int kNearest = 3;  // layouts that a refusal names

std::string InWords(const LayoutPrediction& layout) {
  const PipelineOptions& pipeline = layout.pipeline;
  return absl::StrCat(pipeline.stages, " stages x ", pipeline.replicas, " replicas, ", ToString(pipeline.schedule),
                      ", ", layout.batch.micro_batches, " micro-batches of ", layout.batch.target_tokens,
                      " target tokens, recompute ",
                      pipeline.recompute_every == 0 ? "off"
                      : !pipeline.recompute.empty() ? "in part"
                                                    : absl::StrCat("every ", pipeline.recompute_every));
}

// The most that another cut is taken to gain: for hundreds of layouts of 2,500 sublayers it was at most twice what the
// busiest stage works more than the mean.
double MostGain(const LayoutPrediction& even) {
  constexpr double kTimes = 2, kLeast = 0.01;  // kLeast: share of the step
  return kTimes * (std::ranges::max(even.busy_seconds) - even.parts.compute) + kLeast * even.step_seconds;
}

class Search {
 public:
  Search(const TrainOptions& options, const Machine& machine, const StepCosts& costs, int threads,
         const SearchOptions& search)
      : options_(options),
        machine_(machine),
        costs_(costs),
        search_(search),
        model_(PlannedModel(options, machine.device())),
        stream_(Stream::ForLayouts(machine.device(), threads)),
        layout_machine_{costs, machine.devices_per_node},
        bounds_(model_, options.batch, layout_machine_) {}

  // The result's `best` is empty if nothing fits.
  absl::StatusOr<LayoutSearch> Run();
  // Why there is no layout. REQUIRES: Run found none.
  absl::Status Refusal();

 private:
  enum class Known { kShare, kCut, kEven, kExact };
  struct Entry {
    double seconds = 0;  // bound, or exact
    int64_t order = 0;   // ties: in order of enumeration
    Known known = Known::kShare;
    std::shared_ptr<LayoutPrediction> layout;
    bool operator<(const Entry& other) const {
      return std::tie(seconds, order) > std::tie(other.seconds, other.order);  // priority_queue: the smallest first
    }
  };
  struct TooLarge {
    LayoutPrediction layout;
    FullestStage fullest;
    int64_t room = 0;
  };

  // The borders for this many pieces; nullptr if the model cannot be cut so.
  const std::vector<int32_t>* Borders(const PipelineOptions& pipeline);
  absl::StatusOr<PipelineLayout> LayoutOf(const LayoutPrediction& layout, const std::vector<int32_t>& borders) const;
  // The most that a rank's LimitedBytes (memory_fit.h) may be:
  //   memory_gib − max(reserved_gib, DriverBytes)      and pipeline.memory_limit_bytes, if set
  int64_t Room(const PipelineLayout& pipeline) const;
  // Of the stages of replica pipeline.replica, the one that takes the most.
  FullestStage Fullest(const PipelineLayout& pipeline) const;
  // Whether the stages of one replica fit, recomputing as little as they must if that is the search's to choose.
  // `moves`: the cut may move; else it does so only where the layout fits in no other way.
  bool Fits(LayoutPrediction& layout, PipelineLayout& pipeline, bool moves = false);
  // Refines one entry by one level; a null layout drops it.
  absl::Status Refine(Entry& entry);
  // Lists a layout if all its ranks fit.
  absl::Status List(const LayoutPrediction& layout);
  void NoteTooLarge(const LayoutPrediction& layout, const FullestStage& fullest, int64_t room);
  // Whether the layouts that need least memory fit, one for each number of stages and replicas.
  bool SparingLayoutFits();
  std::string NodesThatFit() const;
  // Names each kept field without which the search finds a layout.
  std::string FieldsInTheWay() const;

  const TrainOptions& options_;
  const Machine& machine_;
  const StepCosts& costs_;
  const SearchOptions search_;
  const ModelPlan model_;
  const Stream stream_;
  const int cpus_ = ProcessCpus();
  const LayoutMachine layout_machine_;
  LayoutBounds bounds_;
  std::map<int, std::optional<std::vector<int32_t>>> borders_;  // by pieces
  LayoutSearch result_;
  std::vector<TooLarge> nearest_;  // of the layouts that did not fit, those with the fewest bytes, ascending
  absl::Status refused_;           // why a candidate cannot be planned
};

const std::vector<int32_t>* Search::Borders(const PipelineOptions& pipeline) {
  const int pieces = pipeline.stages * pipeline.chunks;
  auto found = borders_.find(pieces);
  if (found == borders_.end() && !pipeline.split.empty()) {
    std::vector<int32_t> borders{0};
    borders.insert(borders.end(), pipeline.split.begin(), pipeline.split.end());
    borders.push_back(static_cast<int32_t>(model_.sublayers.size()));
    found = borders_.emplace(pieces, std::move(borders)).first;
  } else if (found == borders_.end()) {
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

absl::StatusOr<PipelineLayout> Search::LayoutOf(const LayoutPrediction& layout,
                                                const std::vector<int32_t>& borders) const {
  PipelineOptions pipeline = layout.pipeline;
  pipeline.split.assign(borders.begin() + 1, borders.end() - 1);
  if (pipeline.recompute_every == kAnyLength) pipeline.recompute_every = 1;  // as SetRecompute requires
  return MakePipelineLayout(model_, layout.batch, pipeline, layout.ranks(), /*rank=*/0,
                            PlannedResources(pipeline, layout.ranks(), machine_.device()));
}

void Search::NoteTooLarge(const LayoutPrediction& layout, const FullestStage& fullest, int64_t room) {
  ++result_.too_large;
  const auto same_grid = [&](const TooLarge& other) { return other.layout.pipeline.stages == layout.pipeline.stages; };
  const auto found = std::ranges::find_if(nearest_, same_grid);
  if (found != nearest_.end() && found->fullest.bytes <= fullest.bytes) return;
  if (found != nearest_.end()) nearest_.erase(found);
  nearest_.push_back({layout, fullest, room});
  std::ranges::sort(nearest_, {}, [](const TooLarge& large) { return large.fullest.bytes; });
  if (std::ssize(nearest_) > kNearest) nearest_.pop_back();
}

int64_t Search::Room(const PipelineLayout& pipeline) const {
  const int64_t driver = machine_.device() == DeviceKind::kCpu ? 0 : DriverBytes(model_, pipeline);
  const int64_t room = machine_.memory_bytes - std::max<int64_t>(0, driver - machine_.reserved_bytes);
  const int64_t limit = options_.pipeline.memory_limit_bytes;
  return limit > 0 ? std::min(room, limit) : room;
}

FullestStage Search::Fullest(const PipelineLayout& pipeline) const {
  FullestStage fullest;
  for (int stage = 0; stage < pipeline.shape.stages; ++stage) {
    const RankParts parts(model_, pipeline, stage, stream_, Purpose::kTraining);
    const int64_t bytes = LimitedBytes(parts.layout, machine_.device());
    if (bytes > fullest.bytes) fullest = {stage, bytes};
  }
  return fullest;
}

bool Search::Fits(LayoutPrediction& layout, PipelineLayout& pipeline, bool moves) {
  const int64_t room = Room(pipeline);
  const bool chooses = layout.pipeline.recompute_every == kAnyLength || !layout.pipeline.recompute.empty();
  const bool movable = chooses && options_.pipeline.split.empty();
  const auto fit = [&](bool moving) {
    const LayoutOfBorders make = [&](const std::vector<int32_t>& borders) { return LayoutOf(layout, borders); };
    return RecomputeToFit(model_, room, stream_, pipeline, moving ? make : nullptr, cpus_);
  };
  moves = moves && movable;
  FullestStage fullest = chooses ? fit(moves) : Fullest(pipeline);
  const bool may_fit = fullest.bytes > room && fullest.all_bytes <= room * pipeline.shape.stages;
  if (movable && !moves && may_fit) {
    moves = true;
    fullest = fit(moves);
  }
  if (moves) layout.pipeline.split.assign(pipeline.borders.begin() + 1, pipeline.borders.end() - 1);
  layout.pipeline.memory_limit_bytes = room;
  layout.pipeline.recompute_every = LongestLength(pipeline.recompute);
  // Only recompute_auto makes a cut that moved. Where nothing is recomputed: one run of length 0, in the schedule of a
  // layout that may recompute.
  const bool moved = layout.pipeline.split != options_.pipeline.split;
  if (chooses && (moved || layout.pipeline.recompute_every > 0)) layout.pipeline.recompute = pipeline.recompute;
  if (chooses && moved && layout.pipeline.recompute_every == 0) layout.pipeline.schedule = pipeline.schedule;
  layout.recompute_fit = pipeline.recompute_fit;
  if (fullest.bytes > room) NoteTooLarge(layout, fullest, room);
  return fullest.bytes <= room;
}

absl::Status Search::Refine(Entry& entry) {
  LayoutPrediction& layout = *entry.layout;
  const std::vector<int32_t>* borders = Borders(layout.pipeline);
  if (borders == nullptr) {
    entry.layout = nullptr;
    return absl::OkStatus();
  }
  if (entry.known == Known::kShare) {
    entry.known = Known::kCut;
    entry.seconds = std::max(entry.seconds, bounds_.Cut(layout, *borders));
    return absl::OkStatus();
  }
  absl::StatusOr<PipelineLayout> pipeline = LayoutOf(layout, *borders);
  if (!pipeline.ok()) {
    refused_ = pipeline.status();
    entry.layout = nullptr;
    return absl::OkStatus();
  }
  if (!Fits(layout, *pipeline, /*moves=*/entry.known == Known::kEven)) {
    entry.layout = nullptr;
    return absl::OkStatus();
  }
  const bool even =
      entry.known == Known::kCut && !layout.pipeline.recompute.empty() && layout.pipeline.recompute_every > 0;
  if (entry.known == Known::kCut) ++result_.replayed;
  HADAL_ASSIGN_OR_RETURN(const LayoutPrediction exact,
                         PredictLayout(model_, layout.batch, *pipeline, layout_machine_, PredictionDetail::kStep));
  entry.known = even ? Known::kEven : Known::kExact;
  entry.seconds = exact.step_seconds;
  if (even) entry.seconds -= MostGain(exact);
  return absl::OkStatus();
}

absl::Status Search::List(const LayoutPrediction& layout) {
  TrainOptions run = options_;
  run.batch = layout.batch;
  run.pipeline = layout.pipeline;
  run.pipeline.memory_limit_bytes = 0;  // in the room
  HADAL_ASSIGN_OR_RETURN(PlanReport report,
                         MakePlanReport(run, layout.ranks(), stream_, costs_, machine_.devices_per_node));
  report.pipeline.recompute_fit = layout.recompute_fit;
  report.prediction->pipeline.memory_limit_bytes = layout.pipeline.memory_limit_bytes;
  report.prediction->pipeline.recompute = layout.pipeline.recompute;
  const int64_t room = Room(report.pipeline);
  const auto fullest = std::ranges::max_element(
      report.layouts, {}, [&](const ArenaLayout& arena) { return LimitedBytes(arena, report.device); });
  if (const int64_t bytes = LimitedBytes(*fullest, report.device); bytes > room) {
    const int rank = static_cast<int>(fullest - report.layouts.begin());
    NoteTooLarge(layout, {report.pipeline.grid.StageOf(rank), bytes}, room);
  } else {
    result_.best.push_back(std::move(report));
  }
  return absl::OkStatus();
}

absl::StatusOr<LayoutSearch> Search::Run() {
  std::priority_queue<Entry> queue;
  for (const LayoutPrediction& candidate : LayoutCandidates(model_, options_, machine_, search_.kept)) {
    HADAL_ASSIGN_OR_RETURN(const double bound, bounds_.Share(candidate));
    if (bound == std::numeric_limits<double>::infinity()) continue;  // no costs for such micro-batches
    queue.push({bound, result_.candidates++, Known::kShare, std::make_shared<LayoutPrediction>(candidate)});
  }
  std::vector<LayoutShape> listed;
  while (!queue.empty() && std::ssize(result_.best) < search_.top) {
    Entry entry = queue.top();
    queue.pop();
    const LayoutShape shape = ShapeOf(*entry.layout);
    if (std::find(listed.begin(), listed.end(), shape) != listed.end()) continue;
    if (entry.known != Known::kExact) {
      HADAL_RETURN_IF_ERROR(Refine(entry));
      if (entry.layout != nullptr) queue.push(std::move(entry));
      continue;
    }
    const size_t before = result_.best.size();
    HADAL_RETURN_IF_ERROR(List(*entry.layout));
    if (result_.best.size() > before) listed.push_back(shape);
  }
  // Another cut may have gained more than MostGain.
  std::ranges::stable_sort(result_.best, {}, [](const PlanReport& report) { return report.prediction->step_seconds; });
  result_.roofline_seconds = bounds_.roofline_seconds();
  result_.operations = StepOperations(model_, options_.batch);
  result_.perfect_seconds = result_.operations / (costs_.peak_flops() * machine_.devices());
  return std::move(result_);
}

bool Search::SparingLayoutFits() {
  std::map<std::pair<int, int>, LayoutPrediction> sparing;  // by stages, replicas
  const auto needs = [](const LayoutPrediction& layout) {
    return std::tuple(layout.batch.target_tokens, layout.pipeline.recompute_every == 0, layout.pipeline.chunks,
                      layout.pipeline.schedule == ScheduleKind::kGpipe, !layout.pipeline.shard_optimizer_state);
  };
  for (const LayoutPrediction& candidate : LayoutCandidates(model_, options_, machine_, search_.kept)) {
    const auto [found, is_new] =
        sparing.try_emplace({candidate.pipeline.stages, candidate.pipeline.replicas}, candidate);
    if (!is_new && needs(candidate) < needs(found->second)) found->second = candidate;
  }
  return std::any_of(sparing.begin(), sparing.end(), [this](const auto& entry) {
    LayoutPrediction layout = entry.second;
    const std::vector<int32_t>* borders = Borders(layout.pipeline);
    if (borders == nullptr) return false;
    absl::StatusOr<PipelineLayout> pipeline = LayoutOf(layout, *borders);
    return pipeline.ok() && Fits(layout, *pipeline);
  });
}

std::string Search::NodesThatFit() const {
  constexpr int kMostNodes = 4096;
  if (machine_.nodes > kMostNodes / 2) return "";
  Machine larger = machine_;
  for (larger.nodes *= 2; larger.nodes <= kMostNodes; larger.nodes *= 2) {
    if (!Search(options_, larger, costs_, stream_.threads(), search_).SparingLayoutFits()) continue;
    return absl::StrCat(" About ", larger.nodes, " nodes of ", larger.devices_per_node, " would fit it.");
  }
  return " More nodes would not help: use smaller micro-batches (batch.target_tokens) or larger devices.";
}

std::string Search::FieldsInTheWay() const {
  std::string text;
  for (bool KeptFields::*field : KeptFields::kAll) {
    if (!(search_.kept.*field)) continue;
    SearchOptions without{.top = 1, .kept = search_.kept};
    without.kept.*field = false;
    const absl::StatusOr<LayoutSearch> search = Search(options_, machine_, costs_, stream_.threads(), without).Run();
    if (!search.ok() || search->best.empty()) continue;
    absl::StrAppend(&text, text.empty() ? " A layout fits without " : ", or without ", KeptText(field, options_), " (",
                    InWords(*search->best.front().prediction), ")");
  }
  return text.empty() ? text : absl::StrCat(text, ".");
}

absl::Status Search::Refusal() {
  const std::string kept = KeptText(search_.kept, options_);
  const std::string with = kept.empty() ? "" : absl::StrCat(" with ", kept);
  if (nearest_.empty()) {
    if (!refused_.ok()) return refused_;
    return InvalidArgumentError(
        "no layout of ", machine_.devices(), " devices", with, " divides this model of ", model_.sublayers.size(),
        " sublayers and ", options_.batch.micro_batches,
        " micro-batch(es): stages x replicas are the devices, each replica needs a micro-batch, each chunk a sublayer.",
        kept.empty() ? " Use fewer devices or more micro-batches." : FieldsInTheWay());
  }
  const auto gib = [](int64_t bytes) { return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / kGib); };
  std::string text = absl::StrCat("no layout of this run", with, " fits ", machine_.devices(), " device(s) of ",
                                  gib(machine_.memory_bytes), ". The nearest:");
  for (const TooLarge& large : nearest_) {
    absl::StrAppend(&text, &large == &nearest_.front() ? " " : "; ", InWords(large.layout), ": stage ",
                    large.fullest.stage, " needs ", gib(large.fullest.bytes), " of ", gib(large.room));
  }
  return ResourceExhaustedError(text, ".", FieldsInTheWay(), NodesThatFit());
}

// The kind of device decides the types of a run's numbers, unless the run does.
absl::Status CheckPrecision(const TrainOptions& options, const Machine& machine) {
  const bool half = machine.precision == Precision::kBf16;
  if (options.precision == TrainingPrecision::kAuto) return absl::OkStatus();
  if (options.precision == (half ? TrainingPrecision::kBf16 : TrainingPrecision::kFp32)) return absl::OkStatus();
  return InvalidArgumentError(
      "the run sets another precision than the machine \"", machine.name, "\", whose description has precision: \"",
      half ? "bf16" : "fp32",
      "\". Leave the run's precision at \"auto\", or pipeline one layout of it with --device cuda.");
}

}  // namespace

double StepOperations(const ModelPlan& model, const BatchOptions& batch) {
  double products = 0;
  for (const double cost : SublayerCosts(model, CapacityOf(model.options, batch), kTypicalSentenceRows))
    products += cost;
  constexpr double kOperations = 2, kPasses = 3;  // a multiply-add; forward, and two products backward
  return kOperations * kPasses * products * batch.micro_batches;
}

absl::StatusOr<LayoutSearch> SearchLayouts(const TrainOptions& options, const Machine& machine, const StepCosts& costs,
                                           int threads, const SearchOptions& search) {
  HADAL_RETURN_IF_ERROR(CheckPrecision(options, machine));
  if (machine.device() == DeviceKind::kCuda) {
    ModelPlan model = ModelPlan::Make(options.model);
    if (machine.precision == Precision::kBf16) model.compute_storage = Storage::kBFloat16;
    HADAL_RETURN_IF_ERROR(CheckDeviceSupport(model));
  }
  Search searched(options, machine, costs, threads, search);
  HADAL_ASSIGN_OR_RETURN(LayoutSearch result, searched.Run());
  if (result.best.empty()) return searched.Refusal();
  return result;
}

}  // namespace hadal
