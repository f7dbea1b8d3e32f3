// The report of `hadal plan` as text.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "layers/border.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/stage/graph_cache.h"
#include "tools/output/human_units.h"
#include "tools/plan/plan_report.h"

namespace hadal {
namespace {

std::string HumanBytes(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? absl::StrFormat("%.1f MiB", mib) : absl::StrFormat("%.2f GiB", mib / 1024);
}

// "b = min(1, t/4000)".
std::string BranchText(const ModelOptions& model) {
  const double period = model.branch_growth_updates, k = model.branch_growth_steepness;
  switch (model.branch_growth) {
    case BranchGrowth::kConstant:
      if (!model.has_encoder()) return absl::StrFormat("b = %g", model.decoder.branch_gain);
      return absl::StrFormat("b = %g/%g", model.encoder.branch_gain, model.decoder.branch_gain);
    case BranchGrowth::kLinear:
      return absl::StrFormat("b = min(1, t/%g)", period);
    case BranchGrowth::kExponential:
      return absl::StrFormat("b = min(1, (e^(%g t/%g) - 1) / (e^%g - 1))", k, period, k);
    case BranchGrowth::kSigmoid:
      return absl::StrFormat("b = min(1, 2 sigmoid(%g t/%g) - 1)", k, period);
  }
  return "";
}

void AppendGains(const ModelOptions& model, std::string& text) {
  const StackMethod &encoder = model.encoder, &decoder = model.decoder;
  if (model.has_encoder()) {
    absl::StrAppendFormat(&text,
                          "residual  encoder r = %.4f, decoder r = %.4f; gains of W_v %.4f/%.4f, W_o %.4f/%.4f, FFN "
                          "%.4f/%.4f; branch %s\n",
                          encoder.residual_gain, decoder.residual_gain, encoder.value_gain, decoder.value_gain,
                          encoder.output_gain, decoder.output_gain, encoder.ffn_gain, decoder.ffn_gain,
                          BranchText(model));
  } else {
    absl::StrAppendFormat(&text, "residual  r = %.4f; gains of W_v %.4f, W_o %.4f, FFN %.4f; branch %s\n",
                          decoder.residual_gain, decoder.value_gain, decoder.output_gain, decoder.ffn_gain,
                          BranchText(model));
  }
}

void AppendHeader(const PlanReport& report, std::string& text) {
  const ModelOptions& model = report.model.options;
  const PipelineLayout& pipeline = report.pipeline;
  absl::StrAppendFormat(
      &text, "model     %s, d_model %d, d_ff %d, heads %d, vocabulary %s%d: %d sublayers, %s parameters\n",
      DepthName(model), model.d_model, model.d_ff, model.heads,
      model.source_vocabulary > 0 ? absl::StrCat(model.source_vocabulary, "/") : std::string(), model.target_vocabulary,
      model.encoder_sublayers() + model.decoder_sublayers(), HumanCount(report.model.ParameterElements()));
  absl::StrAppend(&text, "block     ", BlockText(model.block), "\n");
  AppendGains(model, text);
  absl::StrAppendFormat(&text,
                        "schedule  %s, %d rank(s) x %d chunk(s) x %d thread(s), %d micro-batch(es) of %d source and %d "
                        "target tokens, %s\n",
                        ToString(pipeline.schedule), pipeline.shape.stages, pipeline.shape.chunks, report.threads,
                        pipeline.step_micro_batches, pipeline.capacity.source_rows, pipeline.capacity.target_rows,
                        pipeline.recompute_every > 0
                            ? absl::StrFormat("recomputation every %d sublayers", pipeline.recompute_every)
                            : std::string("no recomputation"));
  if (pipeline.grid.replicas == 1) return;
  absl::StrAppendFormat(&text, "replicas  %d of these pipelines, up to %d micro-batch(es) each, Adam's moments %s\n",
                        pipeline.grid.replicas, pipeline.shape.micro_batches,
                        pipeline.shard_optimizer_state ? "sharded" : "on every replica");
}

// "12.5 ms", or "-" if times are not known.
std::string Milliseconds(const PlanReport& report, double seconds) {
  return report.rate.known() ? absl::StrFormat("%.1f ms", 1e3 * seconds) : "-";
}

void AppendChunks(const PlanReport& report, std::string& text) {
  absl::StrAppendFormat(&text, "\n%4s %5s %14s  %-32s %13s %6s %10s %10s %5s %11s %11s\n", "rank", "chunk", "sublayers",
                        "from", "parameters", "cost", "forward", "backward", "live", "border", "and back");
  const auto border = [](int64_t bytes) { return bytes > 0 ? HumanBytes(bytes) : "-"; };
  for (const ChunkReport& c : report.chunks) {
    absl::StrAppendFormat(&text, "%4d %5d [%5d,%6d)  %-32s %13s %5.1f%% %10s %10s %5d %11s %11s\n", c.rank, c.chunk,
                          c.first, c.last, report.model.SublayerName(c.first), HumanCount(c.parameters),
                          100 * c.cost_share, Milliseconds(report, c.forward_seconds),
                          Milliseconds(report, c.backward_seconds), c.live_micro_batches, border(c.border_bytes),
                          border(c.gradient_bytes));
  }
  absl::StrAppend(
      &text,
      "live: micro-batches held at once; border: bytes per micro-batch to the next chunk, and of gradients back\n");
}

int64_t TotalBytes(const PlanReport& report) {
  int64_t bytes = 0;
  for (const ArenaLayout& layout : report.layouts) bytes += layout.total_bytes();
  return bytes;
}

// The exact bytes on the device, and the pinned bytes on the host.
std::string DeviceMemory(const ArenaLayout& layout) {
  using cuda::OwnMemory;
  return absl::StrFormat(
      " device %s (%d bytes: arena %s, cuBLASLt's workspace %s, launch memory %s, scratch %s), pinned on the host %s\n",
      HumanBytes(LimitedBytes(layout, DeviceKind::kCuda)), LimitedBytes(layout, DeviceKind::kCuda),
      HumanBytes(layout.device_bytes()), HumanBytes(OwnMemory::kWorkspaceBytes), HumanBytes(OwnMemory::kLaunchBytes),
      HumanBytes(OwnMemory::kScratchBytes), HumanBytes(layout.host_bytes() + OwnMemory::kHostBytes));
}

// Launches of a sublayer in a graph, the mean of forward, evaluation and backward. Counted on the emulated device: 51
// in a forward and a backward of 5 sublayers (emulated_run_test), 19 of them forward.
constexpr int64_t kLaunchesOfASublayer = 5;

// The most that a rank keeps.
struct RecordedGraphs {
  int64_t graphs = 0, launches = 0;
};
RecordedGraphs MostGraphsOfARank(const PlanReport& report) {
  std::vector<RecordedGraphs> ranks(report.pipeline.shape.stages);
  for (const ChunkReport& chunk : report.chunks) {
    const int64_t slots = chunk.live_micro_batches;
    const int64_t pending_slots = report.pipeline.pending_slots(chunk.rank, chunk.chunk);
    ranks[chunk.rank].graphs += MostGraphs(slots, pending_slots, report.pipeline.grid.replicas);
    // With replicas, a last backward in parts has no more launches than one in a whole.
    ranks[chunk.rank].launches +=
        MostGraphs(slots, pending_slots, 1) * (chunk.last - chunk.first) * kLaunchesOfASublayer;
  }
  return *std::ranges::max_element(ranks, {}, &RecordedGraphs::launches);
}

// The memory that a rank leaves free on its device, and the total that it needs.
void AppendDriverMemory(const PlanReport& report, std::string& text) {
  using cuda::DriverMemory;
  const int connections = NcclConnections(report.model, report.pipeline);
  const int64_t driver = DriverBytes(report.model, report.pipeline);
  const RecordedGraphs graphs = MostGraphsOfARank(report);
  int64_t fullest = 0;
  for (const ArenaLayout& layout : report.layouts) fullest = std::max(fullest, LimitedBytes(layout, DeviceKind::kCuda));
  absl::StrAppendFormat(&text, "additional memory on the device: %s (modules %s", HumanBytes(driver),
                        HumanBytes(DriverMemory::kModuleBytes));
  if (report.pipeline.graphs) {
    absl::StrAppendFormat(&text, ", at most %d CUDA graphs per rank %s", graphs.graphs,
                          HumanBytes(DriverMemory::kGraphBytes));
  }
  if (connections > 0) {
    absl::StrAppendFormat(&text, ", NCCL with %d connections %s", connections,
                          HumanBytes(DriverMemory::NcclBytes(connections)));
  }
  absl::StrAppendFormat(
      &text, "), allowances that were not measured yet: a rank needs a GPU, or a share of one, with %s free\n",
      HumanBytes(fullest + driver));
  if (!report.pipeline.graphs) return;
  absl::StrAppendFormat(&text,
                        "additional memory on the host: at most %s per rank for about %d launches in these graphs, "
                        "estimated at %d KiB each; micro-batches of fewer shapes need less\n",
                        HumanBytes(graphs.launches * DriverMemory::kGraphLaunchHostBytes), graphs.launches,
                        DriverMemory::kGraphLaunchHostBytes >> 10);
}

void AppendMemory(const PlanReport& report, std::string& text) {
  absl::StrAppend(&text, "\nmemory of each rank\n");
  const bool on_device = report.device == DeviceKind::kCuda;
  const int64_t allowance = MemoryAllowance::Bytes(report.threads);
  for (size_t rank = 0; rank < report.layouts.size(); ++rank) {
    const ArenaLayout& layout = report.layouts[rank];
    absl::StrAppendFormat(&text, "%4d ", rank);
    for (const auto& [name, bytes] : BytesByName(layout))
      absl::StrAppend(&text, " ", name, " ", HumanBytes(bytes), ",");
    if (layout.overlaid_bytes() > 0) {
      absl::StrAppend(&text, " less ", HumanBytes(layout.overlaid_bytes()), " that training and translation share,");
    }
    if (on_device) {
      absl::StrAppend(&text, DeviceMemory(layout));
      continue;
    }
    absl::StrAppendFormat(&text, " arena %s (%d bytes), with allowance %s\n", HumanBytes(layout.total_bytes()),
                          layout.total_bytes(), HumanBytes(layout.total_bytes() + allowance));
  }
  absl::StrAppendFormat(&text, "total of the arenas %s\n", HumanBytes(TotalBytes(report)));
  if (on_device) {
    if (report.relu_mask_bytes > 0) {
      absl::StrAppendFormat(&text,
                            "ReLU masks: up to %s of a rank's activations, if its GPU has products for them; a run "
                            "checks, and otherwise reserves none\n",
                            HumanBytes(report.relu_mask_bytes));
    }
    AppendDriverMemory(report, text);
    return;
  }
  absl::StrAppendFormat(&text, "allowance: %s per process (binary, libraries, MPI) and %s per thread (stack)\n",
                        HumanBytes(MemoryAllowance::kProcessBytes), HumanBytes(MemoryAllowance::kThreadBytes));
}

void AppendTime(const PlanReport& report, std::string& text) {
  if (!report.rate.known()) {
    absl::StrAppend(&text, "\ntime      not predicted: the device's speed is not known here (set --gflops)\n");
    return;
  }
  absl::StrAppendFormat(
      &text, "\ntime      %.0f GFLOP/s per rank (%s): a step takes %.0f ms%s, %s target tokens/s; optimizer %s\n",
      report.rate.gflops,
      report.prediction      ? "of the profile; times are from its costs, not from this rate"
      : report.rate.measured ? "measured here, products alone"
                             : "given",
      1e3 * report.step_seconds, report.prediction ? "" : " at least",
      HumanRate(StepTokens(report) / report.step_seconds),
      report.optimizer_seconds > 0 ? absl::StrFormat("%.0f ms of it", 1e3 * report.optimizer_seconds)
                                   : std::string("not counted"));
  absl::StrAppendFormat(&text, "bubble    %.1f%% of the ranks' time (replay of the schedule with these costs)\n",
                        100 * report.bubble);
}

void AppendSublayers(const PlanReport& report, std::string& text) {
  absl::StrAppendFormat(&text, "\n%8s %4s %5s  %-36s %12s %8s %9s %9s %9s  %s\n", "sublayer", "rank", "chunk", "name",
                        "parameters", "cost", "residual", "branch", "norm", "edges in");
  double total = 0;
  for (const double cost : report.pipeline.costs) total += cost;
  for (const ChunkReport& c : report.chunks) {
    for (int32_t s = c.first; s < c.last; ++s) {
      const SublayerRecord& record = report.model.sublayers[s];
      int64_t parameters = 0;
      for (int32_t p = 0; p < record.parameters; ++p) {
        parameters += report.model.parameters[record.first_parameter + p].elements();
      }
      std::string edges;
      for (const Edge& edge : s > 0 ? BorderEdges(report.model, s) : std::vector<Edge>()) {
        absl::StrAppend(&edges, edges.empty() ? "" : " + ",
                        edge.kind == EdgeKind::kEncoderOutput  ? "encoder output"
                        : edge.kind == EdgeKind::kSecondStream ? "second stream"
                                                               : "residual");
        if (edge.entries > 1) absl::StrAppend(&edges, " x ", edge.entries);
      }
      if (record.skip_gain != 0) absl::StrAppendFormat(&edges, " + %.4f layer input", record.skip_gain);
      absl::StrAppendFormat(
          &text, "%8d %4d %5d  %-36s %12s %7.3f%% %9.4f %9s %9.4f  %s%s\n", s, c.rank, c.chunk,
          report.model.SublayerName(s), HumanCount(parameters), 100 * report.pipeline.costs[s] / total,
          record.residual_gain,
          record.branch_growth == BranchGrowth::kConstant ? absl::StrFormat("%.4f", record.branch_gain) : "b(t)",
          record.norm_gain, edges, s == c.first && s > 0 ? "  <- cut" : "");
    }
  }
}

}  // namespace

std::string PlanToText(const PlanReport& report, const PlanText& options) {
  std::string text;
  AppendHeader(report, text);
  AppendChunks(report, text);
  AppendMemory(report, text);
  AppendTime(report, text);
  if (options.sublayers) AppendSublayers(report, text);
  return text;
}

}  // namespace hadal
