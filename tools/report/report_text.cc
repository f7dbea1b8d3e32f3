// The report as Markdown and as JSON.
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/drawing/markdown.h"
#include "tools/output/human_units.h"
#include "tools/plan/plan_report.h"
#include "tools/report/report.h"
#include "tools/report/run_settings.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ToJson(const TimeParts& parts) {
  OrderedJson json;
  for (const TimePart& part : kTimeParts) json[part.name] = parts.*part.seconds;
  return json;
}

OrderedJson ToJson(const RunRecord& run, const RunSummary& summary) {
  const StepMetrics& last = run.steps.back();
  OrderedJson json{{"directory", run.directory},
                   {"model", run.model},
                   {"parameters", run.parameters},
                   {"ranks", run.ranks},
                   {"threads", run.threads},
                   {"steps", last.step},
                   {"loss", last.loss},
                   {"nll", last.nll},
                   {"steady_steps", summary.steps},
                   {"step_seconds", summary.step_seconds},
                   {"outside_seconds", summary.outside_seconds},
                   {"target_tokens", summary.tokens},
                   {"target_tokens_per_second", summary.tokens_per_second()}};
  if (!run.validations.empty()) {
    json["validation_nll"] = run.validations.back().nll;
    if (run.validations.back().bleu) json["bleu"] = *run.validations.back().bleu;
    if (run.validations.back().wer) json["wer"] = *run.validations.back().wer;
  }
  for (const TextRecord& diagnosis : run.diagnoses) {
    json["diagnoses"].push_back({{"step", diagnosis.step}, {"text", diagnosis.text}});
  }
  if (summary.parts) json["step_parts_seconds"] = ToJson(*summary.parts);
  if (summary.slowest_stage >= 0) {
    json["slowest_stage"] = summary.slowest_stage;
    json["slowest_excess"] = summary.slowest_excess;
  }
  for (size_t index = 0; index < summary.stages.size(); ++index) {
    const StageTimes& times = summary.stages[index];
    OrderedJson stage{{"stage", index},
                      {"forward_seconds", times.forward_seconds},
                      {"recompute_seconds", times.recompute_seconds},
                      {"backward_seconds", times.backward_seconds},
                      {"wait_seconds", times.wait_seconds},
                      {"communication_seconds", times.communication_seconds},
                      {"optimizer_seconds", times.optimizer_seconds},
                      {"checkpoint_seconds", times.checkpoint_seconds},
                      {"core_wait_seconds", times.core_wait_seconds}};
    if (index < summary.beyond_costs.size()) stage["compute_beyond_costs"] = summary.beyond_costs[index];
    if (index < summary.memory.size()) {
      stage["arena_bytes"] = summary.memory[index].arena_bytes;
      stage["predicted_bytes"] = summary.memory[index].arena_bytes + MemoryAllowance::Bytes(run.threads);
      stage["held_bytes"] = summary.memory[index].held_bytes;
      stage["peak_resident_bytes"] = summary.memory[index].peak_resident_bytes;
    }
    json["stages"].push_back(stage);
  }
  return json;
}

OrderedJson ToJson(const RunPrediction& prediction) {
  return {{"costs", prediction.costs},
          {"predicted_step_seconds", prediction.layout.step_seconds},
          {"measured_step_seconds", prediction.measured_seconds},
          {"step_error", prediction.StepError()},
          {"predicted_bytes", prediction.predicted_bytes},
          {"measured_bytes", prediction.measured_bytes},
          {"utilisation", prediction.utilisation},
          {"roofline_share", prediction.roofline_share}};
}

OrderedJson ToJson(const Report& report, const Scaling& scaling) {
  OrderedJson json{{"kind", ToString(scaling.kind)}};
  for (const ScalingRow& row : scaling.rows) {
    json["rows"].push_back({{"run", report.runs[row.run].directory},
                            {"cores", row.cores},
                            {"ranks", report.runs[row.run].ranks},
                            {"threads", report.runs[row.run].threads},
                            {"step_seconds", row.step_seconds},
                            {"target_tokens", row.tokens},
                            {"target_tokens_per_second", row.tokens_per_second},
                            {"speedup", row.speedup},
                            {"efficiency", row.efficiency},
                            {"lost_share", 1 - row.efficiency},
                            {"causes", ToJson(row.causes)},
                            {"largest_loss", DescribeLoss(row, report.summaries[row.run])}});
  }
  return json;
}

void AppendRuns(const Report& report, std::string& text) {
  MarkdownTable table({"run", "ranks x threads", "steps", "last nll", "best validation nll", "last score", "step",
                       "target tokens/s", "slowest stage"});
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const RunRecord& run = report.runs[i];
    const RunSummary& summary = report.summaries[i];
    table.Add({run.name, absl::StrCat(run.ranks, " x ", run.threads), HumanCount(run.steps.back().step),
               HumanValue(run.steps.back().nll, 4), BestNllText(run), LastScoreText(run),
               absl::StrFormat("%.1f ms", 1e3 * summary.step_seconds), HumanRate(summary.tokens_per_second()),
               summary.slowest_stage < 0 || run.ranks == 1
                   ? "-"
                   : absl::StrFormat("%d (%+.1f%%)", summary.slowest_stage, 100 * summary.slowest_excess)});
  }
  text += std::move(table).Finish();
  for (const RunRecord& run : report.runs) {
    for (const TextRecord& diagnosis : run.diagnoses) {
      absl::StrAppend(&text, "\n- ", EscapeMarkdown(run.name), ", step ", diagnosis.step, ": ",
                      EscapeMarkdown(diagnosis.text), "\n");
    }
  }
}

void AppendSettings(const Report& report, std::string& text) {
  const std::vector<std::vector<std::string>> rows = SettingsTable(report.runs);
  if (rows.empty()) return;
  MarkdownTable table(rows[0]);
  for (size_t i = 1; i < rows.size(); ++i) table.Add(rows[i]);
  absl::StrAppend(&text, "\n## Config\n\n", std::move(table).Finish());
}

void AppendParts(const Report& report, std::string& text) {
  std::vector<std::string> header{"ms per step, mean over stages"};
  for (const TimePart& part : kTimeParts) header.push_back(part.name);
  header.push_back("step");
  MarkdownTable table(header);
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const RunSummary& summary = report.summaries[i];
    if (!summary.parts) continue;
    std::vector<std::string> cells{report.runs[i].name};
    for (const TimePart& part : kTimeParts) {
      cells.push_back(absl::StrFormat("%.1f", 1e3 * ((*summary.parts).*part.seconds)));
    }
    cells.push_back(absl::StrFormat("%.1f", 1e3 * summary.step_seconds));
    table.Add(cells);
  }
  absl::StrAppend(&text, std::move(table).Finish(), "\n", DescribeCompute(report), "\n");
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const std::string slow = DescribeSlowStage(report.summaries[i]);
    if (!slow.empty()) absl::StrAppend(&text, "\n- ", EscapeMarkdown(report.runs[i].name), ": ", slow, "\n");
  }
}

void AppendPredictions(const Report& report, std::string& text) {
  if (!report.no_predictions.empty())
    absl::StrAppend(&text, "\nNo prediction: ", EscapeMarkdown(report.no_predictions), "\n");
  const std::vector<std::vector<std::string>> rows = PredictionTable(report);
  if (rows.empty()) return;
  MarkdownTable table(rows[0]);
  for (size_t i = 1; i < rows.size(); ++i) table.Add(rows[i]);
  absl::StrAppend(&text, "\n## Predicted and measured\n\n");
  absl::StrAppend(&text, std::move(table).Finish(), "\n", kPredictionNote, "\n");
}

void AppendScaling(const Report& report, const Scaling& scaling, std::string& text) {
  absl::StrAppend(&text, "\n## Scaling (", ToString(scaling.kind), ")\n\n");
  std::vector<std::string> header{"run", "cores", "target tokens/s", "speed-up", "efficiency", "lost"};
  for (const TimePart& part : kTimeParts) header.push_back(part.name);
  MarkdownTable table(header);
  for (const ScalingRow& row : scaling.rows) {
    std::vector<std::string> cells{report.runs[row.run].name,
                                   absl::StrCat(row.cores),
                                   HumanRate(row.tokens_per_second),
                                   absl::StrFormat("%.2fx", row.speedup),
                                   absl::StrFormat("%.1f%%", 100 * row.efficiency),
                                   absl::StrFormat("%.1f%%", 100 * (1 - row.efficiency))};
    for (const TimePart& part : kTimeParts) {
      cells.push_back(absl::StrFormat("%+.1f%%", 100 * (row.causes.*part.seconds)));
    }
    table.Add(cells);
  }
  absl::StrAppend(
      &text, std::move(table).Finish(),
      "\nThe columns after \"lost\" sum to it: shares of the run's core time, relative to the first row.\n");
  for (const ScalingRow& row : scaling.rows) {
    const std::string loss = DescribeLoss(row, report.summaries[row.run]);
    if (!loss.empty()) absl::StrAppend(&text, "\n- ", EscapeMarkdown(report.runs[row.run].name), ": ", loss);
  }
  absl::StrAppend(&text, "\n");
}

}  // namespace

std::string ReportToJson(const Report& report) {
  OrderedJson json;
  for (size_t i = 0; i < report.runs.size(); ++i) {
    json["runs"].push_back(ToJson(report.runs[i], report.summaries[i]));
    if (!report.predictions.empty()) json["runs"].back()["prediction"] = ToJson(report.predictions[i]);
  }
  if (report.scaling) json["scaling"] = ToJson(report, *report.scaling);
  if (!report.no_predictions.empty()) json["no_predictions"] = report.no_predictions;
  if (!report.no_scaling.empty()) json["no_scaling"] = report.no_scaling;
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string ReportToMarkdown(const Report& report) {
  std::string text = "# hadal report\n\n";
  AppendRuns(report, text);
  absl::StrAppend(&text, "\n## Where a step goes\n\n");
  AppendParts(report, text);
  AppendPredictions(report, text);
  if (report.scaling) AppendScaling(report, *report.scaling, text);
  if (!report.no_scaling.empty()) absl::StrAppend(&text, "\nNo scaling: ", EscapeMarkdown(report.no_scaling), "\n");
  AppendSettings(report, text);
  return text;
}

}  // namespace hadal
