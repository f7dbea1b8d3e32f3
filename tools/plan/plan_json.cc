// The report of `hadal plan` as JSON.
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "kernels/cuda_host/own_memory.h"
#include "pipeline/engine/memory_fit.h"
#include "tools/plan/plan_report.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

// null if times are not known.
OrderedJson Timed(const PlanReport& report, double value) {
  return report.rate.known() ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson ChunkJson(const PlanReport& report, const ChunkReport& chunk) {
  return {{"rank", chunk.rank},
          {"chunk", chunk.chunk},
          {"first_sublayer", chunk.first},
          {"last_sublayer", chunk.last},
          {"parameters", chunk.parameters},
          {"recomputed_sublayers", chunk.recomputed_sublayers},
          {"cost_share", chunk.cost_share},
          {"forward_seconds", Timed(report, chunk.forward_seconds)},
          {"backward_seconds", Timed(report, chunk.backward_seconds)},
          {"weight_seconds", Timed(report, chunk.weight_seconds)},
          {"live_micro_batches", chunk.live_micro_batches},
          {"border_bytes", chunk.border_bytes},
          {"gradient_bytes", chunk.gradient_bytes}};
}

// What a replay of the plan needs beside its chunks; tools/plan/simulate.cc reads it.
void AddReplay(const PlanReport& report, OrderedJson& json) {
  json["replica_micro_batches"] = report.pipeline.shape.micro_batches;
  json["outstanding_sends"] = report.pipeline.outstanding_sends;
  json["free_links"] = report.pipeline.shape.free_links;
  if (!report.prediction) {
    json["tail_seconds"] = Timed(report, report.optimizer_seconds);
    return;
  }
  json["tail_seconds"] = report.prediction->tail_seconds();
  json["gap_seconds"] = report.prediction->costs.gap_seconds;
  json["calls"] = report.prediction->calls;
  for (const LinkCost& link : report.prediction->costs.links) {
    json["links"].push_back({{"held_seconds", link.held_seconds},
                             {"latency_seconds", link.latency_seconds},
                             {"backward_held_seconds", *link.backward_held_seconds}});
  }
}

OrderedJson MemoryJson(const PlanReport& report, const ArenaLayout& layout) {
  OrderedJson memory{{"arena_bytes", layout.total_bytes()}};
  if (report.device == DeviceKind::kCuda) {
    memory["device_bytes"] = LimitedBytes(layout, report.device);
    memory["driver_bytes"] = DriverBytes(report.model, report.pipeline);
    memory["pinned_host_bytes"] = layout.host_bytes() + cuda::OwnMemory::kHostBytes;
  }
  for (const auto& [name, bytes] : BytesByName(layout)) {
    memory[absl::StrReplaceAll(name, {{" ", "_"}}) + "_bytes"] = bytes;
  }
  memory["overlaid_bytes"] = layout.overlaid_bytes();  // counted twice in the entries
  return memory;
}

OrderedJson SublayerJson(const PlanReport& report, int32_t sublayer) {
  return {{"sublayer", sublayer},
          {"name", report.model.SublayerName(sublayer)},
          {"rank", report.pipeline.RankOfSublayer(sublayer)},
          {"multiply_adds", report.pipeline.costs[sublayer]},
          {"residual_gain", report.model.sublayers[sublayer].residual_gain},
          {"norm_gain", report.model.sublayers[sublayer].norm_gain}};
}

}  // namespace

std::string PlanToJson(const PlanReport& report, const PlanText& options) {
  const ModelOptions& model = report.model.options;
  const PipelineLayout& pipeline = report.pipeline;
  OrderedJson json{{"encoder_layers", model.encoder_layers},
                   {"decoder_layers", model.decoder_layers},
                   {"sublayers", model.encoder_sublayers() + model.decoder_sublayers()},
                   {"parameters", report.model.ParameterElements()},
                   {"encoder_residual_gain", model.encoder.residual_gain},
                   {"decoder_residual_gain", model.decoder.residual_gain},
                   {"encoder_value_gain", model.encoder.value_gain},
                   {"decoder_value_gain", model.decoder.value_gain},
                   {"schedule", ToString(pipeline.schedule)},
                   {"ranks", pipeline.grid.ranks()},
                   {"replicas", pipeline.grid.replicas},
                   {"chunks", pipeline.shape.chunks},
                   {"micro_batches", pipeline.step_micro_batches},
                   {"threads", report.threads},
                   {"recompute_every", LongestLength(pipeline.recompute)},
                   {"recompute_gap", pipeline.recompute_fit.gap},
                   {"gflops_a_rank", report.rate.gflops},
                   {"step_seconds", Timed(report, report.step_seconds)},
                   {"optimizer_seconds", Timed(report, report.optimizer_seconds)},
                   {"target_tokens_per_second", Timed(report, StepTokens(report) / report.step_seconds)},
                   {"bubble", Timed(report, report.bubble)},
                   {"allowance_bytes", MemoryAllowance::Bytes(report.threads)}};
  if (!report.rate.known())
    json["note"] = "times are null: the device's speed is not known here; set --gflops or --machine";
  if (report.device == DeviceKind::kCuda) json["relu_mask_bytes"] = report.relu_mask_bytes;
  for (const RecomputeRun& run : pipeline.recompute) {
    json["recompute"].push_back({{"first_sublayer", run.first}, {"segment_sublayers", run.length}});
  }
  AddReplay(report, json);
  if (report.cluster) json["cluster"] = ToJson(*report.cluster);
  for (const ChunkReport& chunk : report.chunks) json["stages"].push_back(ChunkJson(report, chunk));
  for (const ArenaLayout& layout : report.layouts) json["memory"].push_back(MemoryJson(report, layout));
  const auto sublayers = options.sublayers ? static_cast<int32_t>(report.model.sublayers.size()) : 0;
  for (int32_t s = 0; s < sublayers; ++s) json["list"].push_back(SublayerJson(report, s));
  return json.dump(2) + "\n";
}

}  // namespace hadal
