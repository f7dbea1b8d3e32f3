// The output of `hadal plan --machine`, as text and as JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/engine/memory_fit.h"
#include "tools/output/human_units.h"
#include "tools/plan/layout_search.h"

namespace hadal {
namespace {

constexpr double kSecondsADay = 86400;

struct NamedPart {
  const char* name;
  double PredictedParts::*seconds;
  const char* remedy;  // how to reduce it
};
constexpr NamedPart kParts[] = {
    {"compute", &PredictedParts::compute, "faster devices, or larger products (more tokens a micro-batch)"},
    {"host", &PredictedParts::host, "larger micro-batches, or fewer chunks"},
    {"bubble", &PredictedParts::bubble, "more, smaller micro-batches, or more chunks"},
    {"imbalance", &PredictedParts::imbalance, "a cut by measured costs (pipeline.split)"},
    {"links", &PredictedParts::links, "faster links between stages, or fewer chunks"},
    {"reduction", &PredictedParts::reduction, "fewer replicas, or faster links between nodes"},
    {"update", &PredictedParts::update, "more stages or replicas to share the moments"},
};

std::string Milliseconds(double seconds) { return absl::StrFormat("%.1f ms", 1e3 * seconds); }
double Gib(int64_t bytes) { return static_cast<double>(bytes) / kGib; }

const LayoutPrediction& Times(const PlanReport& report) { return *report.prediction; }

// Operations of the model, without recomputation, over the devices' peak in the same time.
double Utilisation(const LayoutSearch& search, const LayoutPrediction& layout) {
  return search.perfect_seconds / layout.step_seconds;
}

std::string RecomputeText(const PipelineLayout& pipeline) {
  const int32_t longest = LongestLength(pipeline.recompute);
  if (longest == 0) return "off";
  if (pipeline.recompute.size() == 1) return absl::StrCat("every ", longest);
  const auto count = static_cast<double>(std::ranges::count(pipeline.recomputed, true));
  return absl::StrFormat("%.1f%%", 100 * count / static_cast<double>(pipeline.recomputed.size()));
}

void AppendHeader(const LayoutSearch& search, const SearchText& about, std::string& text) {
  const ModelPlan& plan = search.best.front().model;
  const ModelOptions& model = plan.options;
  absl::StrAppendFormat(&text, "model     %s, d_model %d, d_ff %d, vocabulary %d: %d sublayers, %s parameters\n",
                        DepthName(model), model.d_model, model.d_ff, model.target_vocabulary,
                        model.encoder_sublayers() + model.decoder_sublayers(), HumanCount(plan.ParameterElements()));
  absl::StrAppendFormat(&text, "machine   %s: %d node(s) of %d, %d devices, %s, %.1f GiB each for our buffers\n",
                        about.machine.name, about.machine.nodes, about.machine.devices_per_node,
                        about.machine.devices(), about.machine.precision == Precision::kBf16 ? "bf16" : "fp32",
                        Gib(about.machine.memory_bytes));
  absl::StrAppendFormat(&text, "costs     %s\n", about.costs.Describe());
  absl::StrAppendFormat(&text, "step      %s target tokens, %.1f TFLOP without recomputation\n",
                        HumanCount(int64_t{about.options.batch.micro_batches} * about.options.batch.target_tokens),
                        1e-12 * search.operations);
  const std::string kept = KeptText(about.kept, about.options);
  if (!kept.empty()) absl::StrAppend(&text, "kept      ", kept, "\n");
  absl::StrAppendFormat(&text, "searched  %d layouts, of which %d were replayed, %d were laid out and did not fit\n",
                        search.candidates, search.replayed, search.too_large);
}

void AppendRanking(const LayoutSearch& search, std::string& text) {
  absl::StrAppendFormat(&text, "\n%2s %6s %6s %8s  %-16s %18s %10s %8s %11s %11s %6s %6s %10s\n", "", "stages",
                        "chunks", "replicas", "schedule", "micro-batches", "recompute", "moments", "step", "tokens/s",
                        "idle", "MFU", "memory");
  for (size_t i = 0; i < search.best.size(); ++i) {
    const LayoutPrediction& l = Times(search.best[i]);
    absl::StrAppendFormat(&text, "%2d %6d %6d %8d  %-16s %18s %10s %8s %11s %11s %5.1f%% %5.1f%% %6.1f GiB\n", i + 1,
                          l.pipeline.stages, l.pipeline.chunks, l.pipeline.replicas, ToString(l.pipeline.schedule),
                          absl::StrCat(l.batch.micro_batches, " x ", l.batch.target_tokens),
                          RecomputeText(search.best[i].pipeline),
                          l.pipeline.replicas == 1           ? "-"
                          : l.pipeline.shard_optimizer_state ? "sharded"
                                                             : "whole",
                          Milliseconds(l.step_seconds), HumanRate(l.TargetTokens() / l.step_seconds),
                          100 * l.idle_share, 100 * Utilisation(search, l), Gib(search.best[i].FullestBytes()));
  }
  absl::StrAppend(&text,
                  "micro-batches: of a step, all replicas together, x target tokens; recompute: of the sublayers; "
                  "idle: of the ranks' time before the update;\nMFU: operations without recomputation over the "
                  "devices' peak; memory: fullest device\n");
}

const NamedPart& LargestLoss(const LayoutPrediction& layout) {
  return *std::ranges::max_element(std::begin(kParts) + 1, std::end(kParts), {},
                                   [&](const NamedPart& part) { return layout.parts.*part.seconds; });
}

void AppendMemory(const PlanReport& report, std::string& text) {
  const auto bytes = [&](const ArenaLayout& layout) { return LimitedBytes(layout, report.device); };
  const auto [least, most] = std::ranges::minmax_element(report.layouts, {}, bytes);
  int64_t state = 0;
  for (const auto& [name, of_name] : BytesByName(*most)) {
    if (name == "weights" || name == "gradients" || name == "optimizer") state += of_name;
  }
  absl::StrAppendFormat(&text,
                        "memory: rank %d is fullest, %.2f GiB = state %.2f + activations and buffers %.2f; rank %d "
                        "holds least, %.2f GiB\n",
                        most - report.layouts.begin(), Gib(bytes(*most)), Gib(state), Gib(bytes(*most) - state),
                        least - report.layouts.begin(), Gib(bytes(*least)));
}

void AppendBest(const LayoutSearch& search, const SearchText& about, std::string& text) {
  const LayoutPrediction& best = Times(search.best.front());
  absl::StrAppend(&text, "\nwhere a step of the best layout goes\n");
  for (const NamedPart& part : kParts) {
    const double seconds = best.parts.*part.seconds;
    absl::StrAppendFormat(&text, "  %-10s %12s %5.1f%%\n", part.name, Milliseconds(seconds),
                          100 * seconds / best.step_seconds);
  }
  const NamedPart& loss = LargestLoss(best);
  const double recompute = best.recompute_seconds[best.busiest_stage];
  absl::StrAppendFormat(
      &text,
      "bottleneck: stage %d computes %s (%s of it repeats forward passes); besides computing, most goes to %s: %s\n",
      best.busiest_stage, Milliseconds(best.busy_seconds[best.busiest_stage]), Milliseconds(recompute), loss.name,
      loss.remedy);
  absl::StrAppendFormat(&text,
                        "bounds: %s with every device at its peak (%.1f%% of this step), %s with every device busy at "
                        "these costs (%.1f%%)\n",
                        Milliseconds(search.perfect_seconds), 100 * search.perfect_seconds / best.step_seconds,
                        Milliseconds(search.roofline_seconds), 100 * search.roofline_seconds / best.step_seconds);
  AppendMemory(search.best.front(), text);
  absl::StrAppendFormat(&text, "calls: at most %s sends and receives of a rank in a step\n",
                        HumanCount(std::llround(best.calls)));
  const int64_t steps = about.options.stop.steps;
  if (steps > 0) {
    const double days = static_cast<double>(steps) * best.step_seconds / kSecondsADay;
    absl::StrAppendFormat(
        &text,
        "run: %s steps take %.2f days, %.0f device-days: a prediction, without data, validation and checkpoints\n",
        HumanCount(steps), days, days * about.machine.devices());
  }
  if (search.best.front().cluster) absl::StrAppend(&text, ToText(*search.best.front().cluster));
  absl::StrAppend(&text, "arguments for this layout, after the configs:\n", LayoutArguments(search.best.front()), "\n");
}

}  // namespace

std::string LayoutArguments(const PlanReport& report) {
  const LayoutPrediction& layout = *report.prediction;
  const PipelineOptions& pipeline = layout.pipeline;
  const std::string recompute =
      pipeline.recompute.empty()
          ? absl::StrCat("recompute_every=", pipeline.recompute_every)
          : absl::StrCat("recompute_auto=true --set pipeline.memory_limit_bytes=", pipeline.memory_limit_bytes);
  return absl::StrCat("--set pipeline.stages=", pipeline.stages, " --set pipeline.replicas=", pipeline.replicas,
                      " --set pipeline.chunks=", pipeline.chunks,
                      " --set pipeline.schedule=", ToString(pipeline.schedule), " --set pipeline.", recompute,
                      " --set pipeline.optimizer_sharding=", pipeline.shard_optimizer_state ? "state" : "none",
                      " --set batch.micro_batches=", layout.batch.micro_batches,
                      " --set batch.source_tokens=", layout.batch.source_tokens,
                      " --set batch.target_tokens=", layout.batch.target_tokens);
}

std::string LayoutSearchToText(const LayoutSearch& search, const SearchText& about) {
  std::string text;
  AppendHeader(search, about, text);
  AppendRanking(search, text);
  AppendBest(search, about, text);
  return text;
}

std::string LayoutSearchToJson(const LayoutSearch& search, const SearchText& about) {
  nlohmann::ordered_json layouts = nlohmann::ordered_json::array();
  for (const PlanReport& report : search.best) {
    const LayoutPrediction& layout = Times(report);
    nlohmann::ordered_json entry{{"stages", layout.pipeline.stages},
                                 {"chunks", layout.pipeline.chunks},
                                 {"replicas", layout.pipeline.replicas},
                                 {"schedule", ToString(layout.pipeline.schedule)},
                                 {"micro_batches", layout.batch.micro_batches},
                                 {"source_tokens", layout.batch.source_tokens},
                                 {"target_tokens", layout.batch.target_tokens},
                                 {"recompute_every", layout.pipeline.recompute_every},
                                 {"sharded", layout.pipeline.shard_optimizer_state},
                                 {"step_seconds", layout.step_seconds},
                                 {"target_tokens_per_second", layout.TargetTokens() / layout.step_seconds},
                                 {"utilisation", Utilisation(search, layout)},
                                 {"idle_share", layout.idle_share},
                                 {"fullest_bytes", report.FullestBytes()},
                                 {"arguments", LayoutArguments(report)}};
    for (const NamedPart& part : kParts) entry[absl::StrCat(part.name, "_seconds")] = layout.parts.*part.seconds;
    layouts.push_back(std::move(entry));
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(PlanToJson(search.best.front(), {}));
  json["search"] = {{"machine", about.machine.name},
                    {"nodes", about.machine.nodes},
                    {"devices", about.machine.devices()},
                    {"costs", about.costs.Describe()},
                    {"kept", KeptText(about.kept, about.options)},
                    {"operations", search.operations},
                    {"candidates", search.candidates},
                    {"replayed", search.replayed},
                    {"too_large", search.too_large},
                    {"perfect_seconds", search.perfect_seconds},
                    {"roofline_seconds", search.roofline_seconds},
                    {"layouts", std::move(layouts)}};
  return json.dump(2) + "\n";
}

}  // namespace hadal
