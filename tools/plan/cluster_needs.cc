// What a planned run needs of a cluster (plan_report.h).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/layout/slice_ownership.h"
#include "tools/output/human_units.h"
#include "tools/plan/plan_report.h"

namespace hadal {
namespace {

// Of a rank, besides its arena.
int64_t ProcessBytes(const PlanReport& report) {
  const int64_t allowance = MemoryAllowance::Bytes(report.threads);
  if (report.device != DeviceKind::kCuda) return allowance;
  const int64_t launches = report.pipeline.graphs ? MostGraphsOfARank(report).launches : 0;
  return allowance + cuda::OwnMemory::kHostBytes + launches * cuda::DriverMemory::kGraphLaunchHostBytes;
}

int64_t HostBytesOfANode(const PlanReport& report, int ranks_per_node) {
  const int64_t process = ProcessBytes(report);
  const auto ranks = std::ssize(report.layouts);
  int64_t most = 0;
  for (int64_t first = 0; first < ranks; first += ranks_per_node) {
    int64_t bytes = 0;
    for (int64_t rank = first; rank < std::min(ranks, first + ranks_per_node); ++rank) {
      const ArenaLayout& layout = report.layouts[rank];
      bytes += process + (report.device == DeviceKind::kCuda ? layout.host_bytes() : layout.total_bytes());
    }
    most = std::max(most, bytes);
  }
  return most;
}

// Two copies of a node's part of a checkpoint and of that of the node before, and the latter once more, while it is
// received.
int64_t CopyBytesOfANode(const PlanReport& report, int ranks_per_node, int nodes) {
  const GridShape& grid = report.pipeline.grid;
  std::vector<int64_t> bytes(nodes);
  for (int stage = 0; stage < grid.stages; ++stage) {
    for (const OwnedSlice& slice : SlicesOfStage(report.model, report.pipeline, stage)) {
      const int node = grid.RankOf(stage, slice.replica) / ranks_per_node;
      const int64_t part = (report.model.uses_muon(slice.parameter) ? 8 : 12) * slice.elements;
      bytes[node] += 2 * part;
      if (nodes > 1) bytes[(node + 1) % nodes] += 3 * part;
    }
  }
  return std::ranges::max(bytes);
}

// The shortest time between two checkpoints.
double IntervalSeconds(const CheckpointOptions& checkpoint, double step_seconds) {
  double shortest = 60 * checkpoint.every_minutes;
  for (const int64_t steps : {checkpoint.every_steps, checkpoint.keep_every}) {
    const double seconds = static_cast<double>(steps) * step_seconds;
    if (seconds > 0 && (shortest == 0 || seconds < shortest)) shortest = seconds;
  }
  return shortest;
}

int64_t KeptCheckpoints(const TrainOptions& run, double step_seconds) {
  const CheckpointOptions& checkpoint = run.checkpoint;
  const int64_t steps = run.stop.steps, every = checkpoint.every_steps, keep_every = checkpoint.keep_every;
  const int64_t multiples = keep_every > 0 ? steps / keep_every : 0;
  if (checkpoint.keep_last == 0) {
    const bool timed = checkpoint.every_minutes == 0 || step_seconds > 0;
    if (steps == 0 || !timed) return -1;
    const int64_t by_steps = every == 0 ? multiples : steps / every + (keep_every % every == 0 ? 0 : multiples);
    const double minutes = static_cast<double>(steps) * step_seconds / 60;
    return by_steps + (checkpoint.every_minutes > 0 ? static_cast<int64_t>(minutes / checkpoint.every_minutes) : 0) + 1;
  }
  if (keep_every > 0 && steps == 0) return -1;
  const int64_t best = run.validation.every_steps > 0 ? run.checkpoint.keep_best : 0;
  return checkpoint.keep_last + multiples + best + 1;
}

}  // namespace

ClusterNeeds ClusterNeedsOf(const PlanReport& report, const TrainOptions& run, const ClusterOptions& options) {
  ClusterNeeds needs{.options = options};
  const int ranks = static_cast<int>(report.layouts.size());
  if (needs.options.ranks_per_node == 0) needs.options.ranks_per_node = ranks;
  const int per_node = needs.options.ranks_per_node;
  needs.nodes = (ranks + per_node - 1) / per_node;
  if (run.checkpoint.memory_every_steps > 0) needs.copy_bytes = CopyBytesOfANode(report, per_node, needs.nodes);
  needs.host_bytes = HostBytesOfANode(report, per_node) + needs.copy_bytes;
  for (int32_t p = 0; p < std::ssize(report.model.parameters); ++p) {
    needs.checkpoint_bytes += (report.model.uses_muon(p) ? 8 : 12) * report.model.parameters[p].elements();
  }
  needs.checkpoint_seconds = static_cast<double>(needs.checkpoint_bytes) / (1e9 * options.write_gb_per_second);
  const double step_seconds = report.rate.known() ? report.step_seconds : 0;
  needs.interval_seconds = IntervalSeconds(run.checkpoint, step_seconds);
  needs.kept_checkpoints = KeptCheckpoints(run, step_seconds);
  needs.end_seconds = step_seconds + 2 * needs.checkpoint_seconds;
  return needs;
}

std::string ToText(const ClusterNeeds& needs) {
  const auto gib = [](int64_t bytes) { return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / kGib); };
  std::string text = absl::StrFormat(
      "nodes     %d of %d rank(s): hadal needs at most %s of a node's own memory%s, besides the page cache and the "
      "driver\n",
      needs.nodes, needs.options.ranks_per_node, gib(needs.host_bytes),
      needs.copy_bytes > 0 ? absl::StrCat(" (", gib(needs.copy_bytes), " of it copies of the state)") : "");
  absl::StrAppendFormat(
      &text, "saving    %s a checkpoint, %s at %g GB/s of all ranks (--write-gb-per-second)%s\n",
      gib(needs.checkpoint_bytes), HumanDuration(needs.checkpoint_seconds), needs.options.write_gb_per_second,
      needs.interval_seconds > 0 ? absl::StrCat(", every ", HumanDuration(needs.interval_seconds)) : "");
  absl::StrAppendFormat(&text, "storage   %s\n",
                        needs.kept_checkpoints < 0
                            ? std::string("grows with every checkpoint (checkpoint.keep_last, keep_every)")
                            : absl::StrFormat("%s: at most %d checkpoints, one of them being written",
                                              gib(needs.kept_bytes()), needs.kept_checkpoints));
  absl::StrAppendFormat(
      &text,
      "signal    a run ends at most %s after it (a step or part of a validation, the rest of a save, a save): %s%s "
      "(--grace-seconds)%s\n",
      HumanDuration(needs.end_seconds), needs.fits_grace() ? "within " : "LONGER THAN ",
      HumanDuration(needs.options.grace_seconds),
      needs.fits_grace() ? "" : "; send it earlier, as --signal of launch/slurm/train.sbatch, or write faster");
  return text;
}

nlohmann::ordered_json ToJson(const ClusterNeeds& needs) {
  using Json = nlohmann::ordered_json;
  const auto known = [](int64_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  return {{"nodes", needs.nodes},
          {"ranks_per_node", needs.options.ranks_per_node},
          {"host_bytes", needs.host_bytes},
          {"copy_bytes", needs.copy_bytes},
          {"checkpoint_bytes", needs.checkpoint_bytes},
          {"checkpoint_seconds", needs.checkpoint_seconds},
          {"write_gb_per_second", needs.options.write_gb_per_second},
          {"interval_seconds", needs.interval_seconds},
          {"kept_checkpoints", known(needs.kept_checkpoints)},
          {"kept_bytes", known(needs.kept_bytes())},
          {"end_seconds", needs.end_seconds},
          {"grace_seconds", needs.options.grace_seconds},
          {"fits_grace", needs.fits_grace()}};
}

}  // namespace hadal
