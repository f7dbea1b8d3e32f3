// The report of `hadal plan` as text.
#include <algorithm>
#include <span>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "kernels/orthogonalize.h"
#include "layers/border.h"
#include "pipeline/engine/memory_fit.h"
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
      if (!model.translates()) {
        return absl::StrFormat("b = %g", (model.has_encoder() ? model.encoder : model.decoder).branch_gain);
      }
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
  const StackMethod &encoder = model.encoder, &decoder = model.decoder, &only = model.has_encoder() ? encoder : decoder;
  const auto gain = [&](double StackMethod::*member) {
    return model.translates() ? absl::StrFormat("%.4f/%.4f", encoder.*member, decoder.*member)
                              : absl::StrFormat("%.4f", only.*member);
  };
  const std::string residual = model.translates() ? absl::StrFormat("encoder r = %.4f, decoder r = %.4f",
                                                                    encoder.residual_gain, decoder.residual_gain)
                                                  : absl::StrFormat("r = %.4f", only.residual_gain);
  absl::StrAppend(&text, "residual  ", residual, "; gains of W_v ", gain(&StackMethod::value_gain), ", W_o ",
                  gain(&StackMethod::output_gain), ", FFN ", gain(&StackMethod::ffn_gain), "; branch ",
                  BranchText(model), "\n");
}

// "muon      12 matrices of 3.1M parameters, …"; the share is of the products of a step, without recomputation.
void AppendMuon(const PlanReport& report, std::string& text) {
  const ModelPlan& model = report.model;
  const PipelineLayout& pipeline = report.pipeline;
  if (model.muon_steps == 0) return;
  int64_t matrices = 0, elements = 0, workspace = 0;
  for (int32_t p = 0; p < std::ssize(model.parameters); ++p) {
    if (!model.uses_muon(p)) continue;
    const ParameterRecord& matrix = model.parameters[p];
    ++matrices;
    elements += matrix.elements();
    workspace = std::max(workspace, OrthogonalizeFloats(matrix.rows, matrix.columns, model.read_storage(p)));
  }
  double products = 0;  // of a rank, the mean over the stages
  for (const double cost : pipeline.costs) products += 6 * cost * pipeline.shape.micro_batches / pipeline.shape.stages;
  absl::StrAppendFormat(&text,
                        "muon      %d matrices of %s parameters, %d Newton-Schulz iterations: up to %.1f%% of a rank's "
                        "operations in a step; %s of workspace\n",
                        matrices, HumanCount(elements), model.muon_steps,
                        100 * report.muon_operations / (products + report.muon_operations),
                        HumanBytes(workspace * int64_t{sizeof(float)}));
}

std::string RecomputationInWords(const PipelineLayout& pipeline) {
  const int32_t longest = LongestLength(pipeline.recompute);
  if (longest == 0) return "no recomputation";
  if (pipeline.recompute.size() == 1) return absl::StrFormat("recomputation every %d sublayers", longest);
  return absl::StrFormat("recomputation of %d sublayers, at most %d together, within %.2g%% of the least that fits",
                         std::ranges::count(pipeline.recomputed, true), longest, 100 * pipeline.recompute_fit.gap);
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
                        RecomputationInWords(pipeline));
  AppendMuon(report, text);
  if (pipeline.grid.replicas == 1) return;
  absl::StrAppendFormat(&text, "replicas  %d of these pipelines, up to %d micro-batch(es) each, moments %s\n",
                        pipeline.grid.replicas, pipeline.shape.micro_batches,
                        pipeline.shard_optimizer_state ? "sharded" : "on every replica");
}

// "12.5 ms", or "-" if times are not known.
std::string Milliseconds(const PlanReport& report, double seconds) {
  return report.rate.known() ? absl::StrFormat("%.1f ms", 1e3 * seconds) : "-";
}

// Neighbouring rows of a table, [first, last), that one line stands for.
struct RowGroup {
  size_t first = 0, last = 0;
};
constexpr size_t kMostRows = 16, kMostLines = 8;  // more rows than kMostRows are grouped

// Groups rows that are `equal` to the one before; if these are still many, spans of a multiple of `unit` rows.
template <typename Equal>
std::vector<RowGroup> GroupRows(size_t rows, bool all, size_t unit, const Equal& equal) {
  std::vector<RowGroup> groups;
  for (size_t row = 0; row < rows; ++row) {
    const bool alone = all || rows <= kMostRows;
    if (groups.empty() || alone || !equal(row - 1, row)) groups.push_back({row, row});
    groups.back().last = row + 1;
  }
  if (all || groups.size() <= kMostRows) return groups;
  groups.clear();
  const size_t span = ((rows + kMostLines - 1) / kMostLines + unit - 1) / unit * unit;
  for (size_t row = 0; row < rows; row += span) groups.push_back({row, std::min(rows, row + span)});
  return groups;
}

// "7", or "0-63".
std::string Span(int64_t first, int64_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

constexpr char kGroupNote[] =
    "a line of several ranks has the numbers of the one with the largest %s; --all-ranks lists all\n";

void AppendChunks(const PlanReport& report, bool all, std::string& text) {
  const auto border = [](int64_t bytes) { return bytes > 0 ? HumanBytes(bytes) : "-"; };
  const std::vector<ChunkReport>& chunks = report.chunks;
  const auto numbers = [&](size_t i) {
    const ChunkReport& c = chunks[i];
    return std::tuple(c.parameters, c.recomputed_sublayers, c.cost_share, c.live_micro_batches, c.border_bytes,
                      c.gradient_bytes);
  };
  const std::vector<RowGroup> groups =
      GroupRows(chunks.size(), all, 1, [&](size_t a, size_t b) { return numbers(a) == numbers(b); });
  const int width = groups.size() < chunks.size() ? 11 : 4;  // "65472-65535"
  absl::StrAppendFormat(&text, "\n%*s %5s %14s %10s  %-32s %13s %6s %10s %10s %5s %11s %11s\n", width, "rank", "chunk",
                        "sublayers", "recomputed", "from", "parameters", "cost", "forward", "backward", "live",
                        "border", "and back");
  for (const RowGroup& group : groups) {
    const std::span rows = std::span(chunks).subspan(group.first, group.last - group.first);
    const auto [low, high] = std::ranges::minmax(rows, {}, &ChunkReport::rank);
    const auto [first, last] = std::ranges::minmax(rows, {}, &ChunkReport::chunk);
    const ChunkReport& c = *std::ranges::max_element(rows, {}, &ChunkReport::cost_share);
    absl::StrAppendFormat(&text, "%*s %5s [%5d,%6d) %10d  %-32s %13s %5.1f%% %10s %10s %5d %11s %11s\n", width,
                          Span(low.rank, high.rank), Span(first.chunk, last.chunk), rows.front().first,
                          rows.back().last, c.recomputed_sublayers, report.model.SublayerName(rows.front().first),
                          HumanCount(c.parameters), 100 * c.cost_share, Milliseconds(report, c.forward_seconds),
                          Milliseconds(report, c.backward_seconds), c.live_micro_batches, border(c.border_bytes),
                          border(c.gradient_bytes));
  }
  if (groups.size() < chunks.size()) absl::StrAppendFormat(&text, kGroupNote, "cost");
  if (LongestLength(report.pipeline.recompute) > 0 && !report.pipeline.recompute_fit.bytes_without.empty()) {
    const auto in_words = [](std::string* out, int64_t bytes) { absl::StrAppend(out, HumanBytes(bytes)); };
    absl::StrAppend(&text, "without recomputation ranks would need ",
                    absl::StrJoin(report.pipeline.recompute_fit.bytes_without, ", ", in_words), "\n");
  }
  absl::StrAppend(&text,
                  "recomputed: sublayers; live: micro-batches held at once; border: bytes per micro-batch to the next "
                  "chunk, and of gradients back\n");
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

// The memory that a rank leaves free on its device, and the total that it needs.
void AppendDriverMemory(const PlanReport& report, std::string& text) {
  using cuda::DriverMemory;
  const int connections = NcclConnections(report.model, report.pipeline);
  const int64_t driver = DriverBytes(report.model, report.pipeline);
  const RecordedGraphs graphs = MostGraphsOfARank(report);
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
      HumanBytes(report.FullestBytes() + driver));
  if (!report.pipeline.graphs) return;
  absl::StrAppendFormat(&text,
                        "additional memory on the host: at most %s per rank for about %d launches in these graphs, "
                        "estimated at %d KiB each; micro-batches of fewer shapes need less\n",
                        HumanBytes(graphs.launches * DriverMemory::kGraphLaunchHostBytes), graphs.launches,
                        DriverMemory::kGraphLaunchHostBytes >> 10);
}

void AppendMemory(const PlanReport& report, bool all, std::string& text) {
  absl::StrAppend(&text, "\nmemory of each rank\n");
  const bool on_device = report.device == DeviceKind::kCuda;
  const int64_t allowance = MemoryAllowance::Bytes(report.threads);
  const std::vector<ArenaLayout>& layouts = report.layouts;
  const std::vector<RowGroup> groups =
      GroupRows(layouts.size(), all, report.pipeline.grid.replicas,
                [&](size_t a, size_t b) { return BytesByName(layouts[a]) == BytesByName(layouts[b]); });
  for (const RowGroup& group : groups) {
    const ArenaLayout& layout =
        *std::ranges::max_element(std::span(layouts).subspan(group.first, group.last - group.first), {},
                                  [&](const ArenaLayout& l) { return LimitedBytes(l, report.device); });
    absl::StrAppendFormat(&text, "%4s ", Span(static_cast<int64_t>(group.first), static_cast<int64_t>(group.last) - 1));
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
  if (groups.size() < layouts.size()) absl::StrAppendFormat(&text, kGroupNote, "memory");
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
  double madds = 0;  // of the model's forward; the backward has twice as many
  for (const double cost : SublayerCosts(report.model, report.pipeline.capacity, kTypicalSentenceRows,
                                         /*with_history=*/false)) {
    madds += cost * report.pipeline.step_micro_batches;
  }
  absl::StrAppendFormat(&text,
                        "\ntime      %.0f GFLOP/s per rank (%s): a step takes %.0f ms%s, %s target tokens/s, %.4g "
                        "model TFLOP/s; optimizer %s\n",
                        report.rate.gflops,
                        report.prediction      ? "of the profile; times are from its costs, not from this rate"
                        : report.rate.measured ? "measured here, products alone"
                                               : "given",
                        1e3 * report.step_seconds, report.prediction ? "" : " at least",
                        HumanRate(StepTokens(report) / report.step_seconds), 6e-12 * madds / report.step_seconds,
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
                        edge.kind == EdgeKind::kEncoderOutput ? "encoder output"
                        : edge.kind == EdgeKind::kResidual    ? "residual"
                        : report.model.ReadsBlocks(edge.rows) ? "open block"
                                                              : "second stream");
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
  AppendChunks(report, options.all_ranks, text);
  AppendMemory(report, options.all_ranks, text);
  AppendTime(report, text);
  if (report.cluster) absl::StrAppend(&text, "\n", ToText(*report.cluster));
  if (options.sublayers) AppendSublayers(report, text);
  return text;
}

}  // namespace hadal
