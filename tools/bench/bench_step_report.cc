#include "tools/bench/bench_step_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "layers/adaptive_bands.h"
#include "layers/speech_front_end.h"
#include "runtime/check.h"
#include "tools/median.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

// Number of (query, key) pairs that attend.
double Pairs(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys, bool causal) {
  double pairs = 0;
  for (size_t i = 0; i + 1 < queries.size(); ++i) {
    const double q = queries[i + 1] - queries[i], k = keys[i + 1] - keys[i];
    pairs += causal ? q * (q + 1) / 2 : q * k;
  }
  return pairs;
}

// Multiply-adds of a sublayer's linear layers and of one product of its attention.
struct Products {
  double linear = 0, attention = 0;
};

// Of adaptive input: a product for each token with its band's projection.
double InputLinear(const ModelOptions& model, const std::vector<int32_t>& tokens) {
  double sum = 0;
  for (const AdaptiveBand& band : AdaptiveBands(model)) {
    const auto count = std::count_if(tokens.begin(), tokens.end(), [&](int32_t t) { return band.Holds(t); });
    sum += static_cast<double>(count) * model.d_model * band.width;
  }
  return sum;
}

double HeadLinear(const ModelOptions& model, const PackedBatch& batch) {
  const double d = model.d_model, rows = static_cast<double>(batch.sentence_target_rows());
  if (!model.adaptive()) return rows * d * model.target_vocabulary;
  double sum = 0;
  for (const AdaptiveBand& band : AdaptiveBands(model)) {
    const auto count =
        std::count_if(batch.target.begin(), batch.target.end(), [&](int32_t t) { return band.Holds(t); });
    sum += band.index == 0 ? rows * d * (band.words + model.adaptive_cutoffs.count)
                           : static_cast<double>(count) * band.width * (d + band.words);
  }
  return sum;
}

Products ProductsOf(const ModelPlan& plan, int32_t sublayer, const PackedBatch& batch) {
  const SublayerRecord& record = plan.sublayers[sublayer];
  const ModelOptions& model = plan.options;
  const double d = model.d_model, q = model.query_width(), k = model.key_width();
  const double target = static_cast<double>(batch.sentence_target_rows());
  const double source = static_cast<double>(batch.sentence_source_rows());
  const bool encoder = record.stack == Stack::kEncoder;
  const double rows = encoder ? source : target;
  const std::vector<int32_t>& offsets = encoder ? batch.source_offsets : batch.target_offsets;
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
    case SublayerKind::kTargetEmbedding:
      if (encoder && model.reads_speech()) return {rows * FrontEndProducts(model), 0};
      if (plan.Tables(sublayer) <= 1) return {};
      return {InputLinear(model, encoder ? batch.source : batch.target_input), 0};
    case SublayerKind::kSelfAttention:
      return {2 * rows * d * (q + k), q * Pairs(offsets, offsets, !encoder)};
    case SublayerKind::kCrossAttention:
      return {2 * d * (target * q + source * k), q * Pairs(batch.target_offsets, batch.source_offsets, false)};
    case SublayerKind::kFeedForward:
      return {model.feed_forward_products() * rows * d * model.d_ff, 0};
    case SublayerKind::kOutputHead:
      return {HeadLinear(model, batch), 0};
  }
  return {};
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.1f ms", 1e3 * seconds); }

void PrintModel(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out) {
  const ModelOptions& model = measured.model;
  out << absl::StrFormat("%s %dL-%dL, d_model %d, d_ff %d, heads %d, vocabulary %d: %d parameters\n",
                         ResidualMethodName(options.method), model.encoder_layers, model.decoder_layers, model.d_model,
                         model.d_ff, model.heads, options.vocabulary, measured.parameters);
  out << absl::StrFormat(
      "%d rank(s) x %d thread(s), %s, %d micro-batch(es) of %d target tokens, sentences of %s%d, dropout %g, "
      "recompute_every %d\n",
      measured.ranks, measured.threads, ToString(options.schedule), options.micro_batches, options.tokens,
      options.mixed_length ? "mixed length around " : "", options.length, options.dropout, options.recompute_every);
  if (!measured.device.empty()) out << "device:     " << measured.device << "\n";
}

void PrintStep(const BenchStepMeasurement& measured, std::ostream& out) {
  const double step = Median(measured.step_seconds);
  out << absl::StrFormat("step:       %s median of %d (best %s), %.0f target tokens/s\n", Milliseconds(step),
                         measured.step_seconds.size(),
                         Milliseconds(*std::min_element(measured.step_seconds.begin(), measured.step_seconds.end())),
                         static_cast<double>(measured.target_tokens) / step);
  out << absl::StrFormat("            %.3f TFLOP/s of the model's %.4g TFLOP; %.3f with what is recomputed\n",
                         1e-12 * measured.flops.model() / step, 1e-12 * measured.flops.model(),
                         1e-12 * measured.flops.executed() / step);
  for (size_t r = 0; r < measured.parts[0].size(); ++r) {
    out << absl::StrFormat("  rank %d:  ", r);
    for (int p = 0; p < kStepParts; ++p)
      out << absl::StrFormat(" %s %s", kStepPartNames[p], Milliseconds(Median(measured.parts[p][r])));
    if (!measured.device.empty()) out << absl::StrFormat(", %.0f launches", measured.launches[r]);
    out << "\n";
  }
  if (measured.eager_seconds.empty()) return;
  out << absl::StrFormat("no graphs:  %s median of %d;", Milliseconds(Median(measured.eager_seconds)),
                         measured.eager_seconds.size());
  for (const double launches : measured.eager_launches) out << absl::StrFormat(" %.0f", launches);
  out << " launches\n";
}

// The GEMM limit by the way of running the products that has the lowest median.
struct FastestLimit {
  size_t way = 0;              // index in BenchStepMeasurement::ways
  double seconds = 0;          // median
  std::vector<double> shares;  // limit seconds / step seconds of each pair, ascending
};

// REQUIRES: a limit was measured.
FastestLimit FastestLimitOf(const BenchStepMeasurement& measured) {
  HADAL_CHECK(!measured.ways.empty());
  FastestLimit limit;
  for (size_t way = 0; way < measured.ways.size(); ++way) {
    const double seconds = Median(measured.limit_seconds[way]);
    if (way > 0 && seconds >= limit.seconds) continue;
    limit.way = way;
    limit.seconds = seconds;
  }
  const std::vector<double>& seconds = measured.limit_seconds[limit.way];
  for (size_t i = 0; i < seconds.size(); ++i) limit.shares.push_back(seconds[i] / measured.step_seconds[i]);
  std::sort(limit.shares.begin(), limit.shares.end());
  return limit;
}

void PrintLimit(const BenchStepMeasurement& measured, std::ostream& out) {
  const FastestLimit limit = FastestLimitOf(measured);
  const char* const what = measured.device.empty() ? "the cores' peak" : "without attention, which is a fused kernel";
  out << absl::StrFormat("GEMM limit: %s (%s; %.1f GFLOP at %.0f GFLOP/s)\n", Milliseconds(limit.seconds), what,
                         1e-9 * measured.limit_flops, 1e-9 * measured.limit_flops / limit.seconds);
  for (size_t way = 0; way < measured.ways.size(); ++way) {
    out << absl::StrFormat("  %s: %s%s\n", measured.ways[way], Milliseconds(Median(measured.limit_seconds[way])),
                           way == limit.way ? ", the limit" : "");
  }
  out << absl::StrFormat("share:      %.1f%% of the GEMM limit (median of %d pairs; %.1f%% to %.1f%%)\n",
                         100 * Median(limit.shares), limit.shares.size(), 100 * limit.shares.front(),
                         100 * limit.shares.back());
}

void PrintMemory(const BenchStepMeasurement& measured, size_t rank, std::ostream& out) {
  out << absl::StrFormat("memory of rank %d: peak RSS %.3f GiB, arena %.3f GiB (%d bytes, plan %s)", rank,
                         measured.peak_rss_bytes[rank] / kGib, measured.arena_bytes[rank] / kGib,
                         static_cast<int64_t>(measured.arena_bytes[rank]),
                         measured.arena_bytes[rank] == measured.plan_bytes[rank] ? "equal" : "DIFFERS");
  if (!measured.device.empty()) out << absl::StrFormat(", graphs %.3f GiB", measured.graph_bytes[rank] / kGib);
  out << "\n";
}

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
                          {"recompute_every", options.recompute_every},
                          {"overlap_weight_gradients", options.overlap_weight_gradients}});
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
  json["gemm_limit_way"] = measured.ways[limit.way];
  for (size_t way = 0; way < measured.ways.size(); ++way) {
    json["gemm_limit_ways"][measured.ways[way]] = measured.limit_seconds[way];
  }
  json["gemm_flops"] = measured.limit_flops;
  json["gemm_tflops_per_second"] = 1e-12 * measured.limit_flops / limit.seconds;
  json["share_of_gemm_limit"] = Median(limit.shares);
}

}  // namespace

StepFlops StepFlopsOf(const ModelPlan& plan, std::span<const PackedBatch> batches, bool recompute) {
  StepFlops flops;
  for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
    const SublayerKind kind = plan.sublayers[s].kind;
    const bool embeds = kind == SublayerKind::kSourceEmbedding || kind == SublayerKind::kTargetEmbedding;
    const bool again = recompute && kind != SublayerKind::kOutputHead && !embeds;
    for (const PackedBatch& batch : batches) {
      const Products products = ProductsOf(plan, s, batch);
      flops.linear += 3 * 2 * products.linear;
      flops.attention += 6 * 2 * products.attention;
      flops.recomputed_linear += again ? 2 * products.linear : 0;
      flops.recomputed_attention += (again ? 3 : 1) * 2 * products.attention;
    }
  }
  return flops;
}

void PrintBenchStepText(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out) {
  PrintModel(options, measured, out);
  PrintStep(measured, out);
  if (!measured.ways.empty()) PrintLimit(measured, out);
  for (size_t r = 0; r < measured.arena_bytes.size(); ++r) PrintMemory(measured, r, out);
}

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
