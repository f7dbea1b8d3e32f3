#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/bench/bench_step_report.h"
#include "tools/median.h"
#include "tools/units.h"

namespace hadal {
namespace {

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

void PrintLimit(const BenchStepMeasurement& measured, std::ostream& out) {
  const FastestLimit limit = FastestLimitOf(measured);
  const std::string attention = measured.device.empty()
                                    ? absl::StrCat("attention ", Milliseconds(limit.attention_seconds))
                                    : std::string("without attention, which is a fused kernel");
  out << absl::StrFormat("GEMM limit: %s (%s; %.1f GFLOP at %.0f GFLOP/s)\n", Milliseconds(limit.seconds), attention,
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

}  // namespace

void PrintBenchStepText(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out) {
  PrintModel(options, measured, out);
  PrintStep(measured, out);
  if (!measured.ways.empty()) PrintLimit(measured, out);
  for (size_t r = 0; r < measured.arena_bytes.size(); ++r) PrintMemory(measured, r, out);
}

}  // namespace hadal
