#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/bench/bench_step_report.h"
#include "tools/median.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AddSetting(const BenchStepOptions& options, const BenchStepMeasurement& measured, OrderedJson& json) {
  const ModelOptions& model = measured.model;
  json.update(OrderedJson{{"method", ResidualMethodName(options.method)},
                          {"encoder_layers", model.encoder_layers},
                          {"decoder_layers", model.decoder_layers},
                          {"d_model", model.d_model},
                          {"d_ff", model.d_ff},
                          {"heads", model.heads},
                          {"vocabulary", options.vocabulary},
                          {"parameters", measured.parameters},
                          {"ranks", measured.ranks},
                          {"threads", measured.threads},
                          {"device", measured.device.empty() ? "CPU" : measured.device},
                          {"storage", options.compute_storage == Storage::kBFloat16 ? "bf16" : "fp32"},
                          {"micro_batches", options.micro_batches},
                          {"target_tokens", measured.target_tokens},
                          {"length", options.length},
                          {"mixed_length", options.mixed_length},
                          {"dropout", options.dropout},
                          {"recompute_every", options.recompute_every}});
}

void AddStep(const BenchStepMeasurement& measured, OrderedJson& json) {
  const double step = Median(measured.step_seconds);
  json["step_seconds"] = measured.step_seconds;
  json["step_seconds_median"] = step;
  json["target_tokens_per_second"] = static_cast<double>(measured.target_tokens) / step;
  json["model_flops"] = measured.flops.model();
  json["executed_flops"] = measured.flops.executed();
  json["model_tflops_per_second"] = 1e-12 * measured.flops.model() / step;
  json["executed_tflops_per_second"] = 1e-12 * measured.flops.executed() / step;
  for (int p = 0; p < kStepParts; ++p) {
    OrderedJson& of_ranks = json[absl::StrCat(kStepPartNames[p], "_seconds")];
    for (const std::vector<double>& of_rank : measured.parts[p]) of_ranks.push_back(Median(of_rank));
  }
}

void AddDevice(const BenchStepMeasurement& measured, OrderedJson& json) {
  json["launches"] = measured.launches;
  json["graph_bytes"] = measured.graph_bytes;
  if (measured.eager_seconds.empty()) return;
  json["eager_step_seconds"] = measured.eager_seconds;
  json["eager_step_seconds_median"] = Median(measured.eager_seconds);
  json["eager_launches"] = measured.eager_launches;
}

void AddLimit(const BenchStepMeasurement& measured, OrderedJson& json) {
  const FastestLimit limit = FastestLimitOf(measured);
  json["gemm_limit_seconds"] = limit.seconds;
  json["gemm_limit_attention_seconds"] = limit.attention_seconds;
  json["gemm_limit_way"] = measured.ways[limit.way];
  for (size_t way = 0; way < measured.ways.size(); ++way) {
    json["gemm_limit_ways"][measured.ways[way]] = measured.limit_seconds[way];
  }
  json["gemm_flops"] = measured.limit_flops;
  json["gemm_tflops_per_second"] = 1e-12 * measured.limit_flops / limit.seconds;
  json["share_of_gemm_limit"] = Median(limit.shares);
}

}  // namespace

void PrintBenchStepJson(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out) {
  OrderedJson json = OrderedJson::object();
  AddSetting(options, measured, json);
  AddStep(measured, json);
  if (!measured.device.empty()) AddDevice(measured, json);
  json["peak_rss_bytes"] = measured.peak_rss_bytes;
  json["arena_bytes"] = measured.arena_bytes;
  json["plan_bytes"] = measured.plan_bytes;
  if (!measured.ways.empty()) AddLimit(measured, json);
  out << json.dump(2) << "\n";
}

}  // namespace hadal
