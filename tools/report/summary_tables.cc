// The tables of a summary. Their numbers are those of RunSummary and Scaling; here they get units and words.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/run_directory.h"
#include "tools/output/human_units.h"
#include "tools/plan/plan_report.h"
#include "tools/report/scaling.h"
#include "tools/report/summary.h"

namespace hadal {
namespace {

using Row = std::vector<SummaryCell>;

SummaryCell MillisecondCell(double seconds) { return {absl::StrFormat("%.1f", 1e3 * seconds), 1e3 * seconds}; }
SummaryCell PercentCell(double share) { return {absl::StrFormat("%.1f%%", 100 * share), 100 * share}; }
SummaryCell SignedPercentCell(double share) { return {absl::StrFormat("%+.1f%%", 100 * share), 100 * share}; }
SummaryCell CountCell(int64_t count) { return {HumanCount(count), static_cast<double>(count)}; }
SummaryCell MebibyteCell(int64_t bytes) {
  if (bytes <= 0) return {"-", std::nullopt};
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return {absl::StrFormat("%.1f", mebibytes), mebibytes};
}

// "4.117 (step 200)", "BLEU 28.9 (step 200)", of speech "WER 10.7% (step 200)"; "-" without validations or scores.
SummaryCell BestNll(const RunRecord& run) {
  const ValidationRecord* best = nullptr;
  for (const ValidationRecord& validation : run.validations) {
    if (std::isfinite(validation.nll) && (best == nullptr || validation.nll < best->nll)) best = &validation;
  }
  if (best == nullptr) return {"-", std::nullopt};
  return {absl::StrCat(HumanValue(best->nll, 4), " (step ", HumanCount(best->step), ")"), best->nll};
}

SummaryCell LastScore(const RunRecord& run) {
  for (auto validation = run.validations.rbegin(); validation != run.validations.rend(); ++validation) {
    if (!validation->wer && !validation->bleu) continue;
    const std::string step = absl::StrCat(" (step ", HumanCount(validation->step), ")");
    if (validation->wer) return {absl::StrFormat("WER %.1f%%%s", 100 * *validation->wer, step), *validation->wer};
    return {absl::StrFormat("BLEU %.1f%s", *validation->bleu, step), *validation->bleu};
  }
  return {"-", std::nullopt};
}

std::string EndOf(const RunRecord& run) {
  if (!run.finish.empty()) return run.finish;
  return run.failure.empty() ? "not yet" : "failed";
}

SummaryTable RunsTable(const Summary& summary) {
  SummaryTable table{
      .name = "runs",
      .title = "Runs",
      .columns = {"run", "ranks x threads", "steps", "last nll", "best validation nll", "last score", "step (ms)",
                  "target tokens/s", "outside steps (ms per step)", "slowest stage", "ended"},
      .note =
          "nll: nats per target token, without label smoothing. Times are means over the steady steps: without the "
          "first and without skipped ones. Outside steps: data, metrics, validation and checkpoints."};
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    const RunRecord& run = summary.runs[i];
    const RunSummary& times = summary.summaries[i];
    const SummaryCell slowest =
        times.slowest_stage < 0 || run.ranks == 1
            ? SummaryCell{"-", std::nullopt}
            : SummaryCell{absl::StrFormat("%d (%+.1f%%)", times.slowest_stage, 100 * times.slowest_excess),
                          static_cast<double>(times.slowest_stage)};
    table.rows.push_back({{run.name, std::nullopt},
                          {absl::StrCat(run.ranks, " x ", run.threads), std::nullopt},
                          CountCell(run.steps.back().step),
                          {HumanValue(run.steps.back().nll, 4), run.steps.back().nll},
                          BestNll(run),
                          LastScore(run),
                          MillisecondCell(times.step_seconds),
                          {HumanRate(times.tokens_per_second()), times.tokens_per_second()},
                          MillisecondCell(times.outside_seconds),
                          slowest,
                          {EndOf(run), std::nullopt}});
  }
  return table;
}

std::string DescribeCompute(const Summary& summary) {
  if (summary.predictions.empty()) {
    return "No profile was given (--profile, --machine): forward, recompute and backward are as measured, and their "
           "losses on more cores are relative to the run on the fewest cores.";
  }
  return absl::StrCat(
      "Forward, recompute and backward are the times of a step at full speed according to the ",
      summary.predictions.front().costs,
      "; compute time beyond that, with a core, is \"compute slower than profiled\" (negative: faster).");
}

// A row for each part of a step, a column for each run; of one run also the part's share.
SummaryTable PartsTable(const Summary& summary) {
  SummaryTable table{
      .name = "parts", .title = "Where a step goes", .columns = {"part"}, .note = DescribeCompute(summary)};
  std::vector<size_t> runs;
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    if (summary.summaries[i].parts) runs.push_back(i);
  }
  if (runs.empty()) return table;
  const bool one = runs.size() == 1;
  for (const size_t i : runs) table.columns.push_back(absl::StrCat(summary.runs[i].name, " (ms)"));
  if (one) table.columns.push_back("share of the step");
  const auto add = [&](const char* name, const auto& seconds) {
    Row row = {{name, std::nullopt}};
    for (const size_t i : runs) row.push_back(MillisecondCell(seconds(summary.summaries[i])));
    const RunSummary& first = summary.summaries[runs[0]];
    if (one) row.push_back(PercentCell(seconds(first) / first.step_seconds));
    table.rows.push_back(std::move(row));
  };
  for (const TimePart& part : kTimeParts) {
    add(part.name, [&part](const RunSummary& times) { return (*times.parts).*part.seconds; });
  }
  add("step", [](const RunSummary& times) { return times.step_seconds; });
  return table;
}

std::string StagesNote(const RunSummary& times) {
  std::string note = "Means over a stage's replicas.";
  if (const std::string slow = DescribeSlowStage(times); !slow.empty()) absl::StrAppend(&note, " ", slow, ".");
  if (!times.wait_is_split) return note;
  absl::StrAppendFormat(&note,
                        " Waiting, mean over the stages, that for others in the step's tail included: %.1f ms the "
                        "schedule's bubble, %.1f ms imbalance between stages, %.1f ms exposed transfers and jitter.",
                        1e3 * times.parts->bubble, 1e3 * times.parts->imbalance, 1e3 * times.parts->exposed_transfers);
  return note;
}

// Where each stage's step goes; waiting is split only for the run as a whole.
SummaryTable StagesTable(const RunRecord& run, const RunSummary& times) {
  SummaryTable table{
      .name = "stages",
      .run = run.name,
      .title = absl::StrCat("Where each stage's step goes: ", run.name),
      .columns = {"stage", "forward (ms)", "recompute (ms)", "backward (ms)", "optimizer (ms)",
                  "waiting for a core (ms)", "checkpoint (ms)", "wait (ms)", "communication (ms)", "unexplained (ms)"}};
  if (!times.parts) {
    table.note = absl::StrCat(run.name, ": no stage times recorded (logging.every_steps)");
    return table;
  }
  table.note = StagesNote(times);
  if (!times.beyond_costs.empty()) table.columns.push_back("compute beyond prediction");
  for (size_t stage = 0; stage < times.stages.size(); ++stage) {
    const StageTimes& t = times.stages[stage];
    const double busy = t.forward_seconds + t.recompute_seconds + t.backward_seconds + t.optimizer_seconds;
    const double core_wait = std::min(t.core_wait_seconds, busy), had_core = busy > 0 ? 1 - core_wait / busy : 1;
    const double explained = busy + t.checkpoint_seconds + t.wait_seconds + t.communication_seconds;
    Row row = {CountCell(static_cast<int64_t>(stage))};
    for (const double seconds :
         {t.forward_seconds * had_core, t.recompute_seconds * had_core, t.backward_seconds * had_core,
          t.optimizer_seconds * had_core, core_wait, t.checkpoint_seconds, t.wait_seconds, t.communication_seconds,
          std::max(0.0, times.step_seconds - explained)}) {
      row.push_back(MillisecondCell(seconds));
    }
    if (!times.beyond_costs.empty()) row.push_back(SignedPercentCell(times.beyond_costs[stage]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

SummaryTable MemoryTable(const RunRecord& run, const RunSummary& times) {
  SummaryTable table{.name = "memory",
                     .run = run.name,
                     .title = absl::StrCat("Memory of each stage: ", run.name),
                     .columns = {"stage", "arena, planned (MiB)", "held between steps (MiB)",
                                 "with allowance, planned (MiB)", "peak resident (MiB)", "peak / planned"},
                     .note =
                         "Held: memory that the system cannot reclaim. The peak is inside a step, with packing buffers "
                         "of products, and file pages (program, libraries, corpus), which belong to the page cache."};
  for (size_t stage = 0; stage < times.memory.size(); ++stage) {
    const StageMemory& memory = times.memory[stage];
    const int64_t planned = memory.arena_bytes + MemoryAllowance::Bytes(run.threads);
    table.rows.push_back({CountCell(static_cast<int64_t>(stage)), MebibyteCell(memory.arena_bytes),
                          MebibyteCell(memory.held_bytes), MebibyteCell(planned),
                          MebibyteCell(memory.peak_resident_bytes),
                          PercentCell(static_cast<double>(memory.peak_resident_bytes) / static_cast<double>(planned))});
  }
  return table;
}

SummaryTable PredictionsTable(const Summary& summary) {
  SummaryTable table{.name = "predictions",
                     .title = "Predicted and measured",
                     .columns = {"run", "step predicted (ms)", "measured (ms)", "error", "memory predicted (MiB)",
                                 "measured (MiB)", "model TFLOP/s", "MFU", "share of roofline"}};
  for (size_t i = 0; i < summary.predictions.size(); ++i) {
    const RunPrediction& prediction = summary.predictions[i];
    table.note = absl::StrCat(
        "model TFLOP/s: without recomputed operations; MFU: these over what matrix products alone reach; share of "
        "roofline: what the predicted costs of all sublayers, spread evenly over the ranks, take of the measured step. "
        "Costs: ",
        prediction.costs, ".");
    table.rows.push_back({{summary.runs[i].name, std::nullopt},
                          MillisecondCell(prediction.layout.step_seconds),
                          MillisecondCell(prediction.measured_seconds),
                          SignedPercentCell(prediction.StepError()),
                          MebibyteCell(prediction.predicted_bytes),
                          MebibyteCell(prediction.measured_bytes),
                          {absl::StrFormat("%.4g", prediction.model_tflops), prediction.model_tflops},
                          PercentCell(prediction.utilisation),
                          PercentCell(prediction.roofline_share)});
  }
  return table;
}

SummaryTable ScalingTable(const Summary& summary, const Scaling& scaling) {
  SummaryTable table{
      .name = "scaling",
      .title = absl::StrCat("Scaling efficiency (", ToString(scaling.kind), ")"),
      .columns = {"run", "cores", "tokens per step", "step (ms)", "target tokens/s", "speed-up", "efficiency", "lost"}};
  for (const ScalingRow& row : scaling.rows) {
    table.rows.push_back({{summary.runs[row.run].name, std::nullopt},
                          CountCell(row.cores),
                          CountCell(static_cast<int64_t>(std::llround(row.tokens))),
                          MillisecondCell(row.step_seconds),
                          {HumanRate(row.tokens_per_second), row.tokens_per_second},
                          {absl::StrFormat("%.2fx", row.speedup), row.speedup},
                          PercentCell(row.efficiency),
                          PercentCell(1 - row.efficiency)});
    const std::string loss = DescribeLoss(row, summary.summaries[row.run]);
    if (!loss.empty()) {
      absl::StrAppend(&table.note, table.note.empty() ? "" : " ", summary.runs[row.run].name, ": ", loss, ".");
    }
  }
  return table;
}

// A row for each cause, a column for each run.
SummaryTable CausesTable(const Summary& summary, const Scaling& scaling) {
  SummaryTable table{.name = "causes",
                     .title = "What each run loses against the first, in percent of its core time",
                     .columns = {"cause"},
                     .note = "A column sums to what the run has lost. Negative: a gain."};
  for (const ScalingRow& row : scaling.rows) table.columns.push_back(summary.runs[row.run].name);
  for (const TimePart& part : kTimeParts) {
    Row cells = {{part.name, std::nullopt}};
    for (const ScalingRow& row : scaling.rows) cells.push_back(SignedPercentCell(row.causes.*part.seconds));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

SummaryTable ConfigTable(const Summary& summary) {
  SummaryTable table{.name = "config",
                     .title = "Config",
                     .note = absl::StrCat("Fields that differ from their default or between the runs; each run's ",
                                          kResolvedConfigName, " has all.")};
  for (const std::vector<std::string>& texts : SettingsTable(summary.runs)) {
    if (table.columns.empty()) {
      table.columns = texts;
      continue;
    }
    Row row;
    for (const std::string& text : texts) row.push_back({text, std::nullopt});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::vector<SummaryTable> MakeTables(const Summary& summary) {
  std::vector<SummaryTable> tables = {RunsTable(summary), PartsTable(summary), PredictionsTable(summary)};
  if (summary.scaling) {
    tables.push_back(ScalingTable(summary, *summary.scaling));
    tables.push_back(CausesTable(summary, *summary.scaling));
  }
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    tables.push_back(StagesTable(summary.runs[i], summary.summaries[i]));
    tables.push_back(MemoryTable(summary.runs[i], summary.summaries[i]));
  }
  tables.push_back(ConfigTable(summary));
  std::erase_if(tables, [](const SummaryTable& table) {
    return table.rows.empty() && (table.name != "stages" || table.note.empty());
  });
  return tables;
}

}  // namespace hadal
