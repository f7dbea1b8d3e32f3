// A summary as text, as JSON and as CSV.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/run_directory.h"
#include "runtime/text.h"
#include "tools/choose_rows.h"
#include "tools/output/human_units.h"
#include "tools/output/stage_time_parts.h"
#include "tools/output/work_progress.h"
#include "tools/plan/plan_report.h"
#include "tools/report/summary.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Of a text; the JSON and the CSV have all.
constexpr int kMostTextRows = 24;
constexpr size_t kTextsAtEachEnd = 5;

// One row as lines of name and value: a run's row has too many columns for a terminal.
std::string RowAsLines(const SummaryTable& table) {
  int width = 0;
  for (const std::string& column : table.columns) width = std::max(width, DisplayWidth(column));
  std::string text;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    absl::StrAppend(&text, "  ", table.columns[i], std::string(width + 2 - DisplayWidth(table.columns[i]), ' '),
                    Printable(table.rows[0][i].text), "\n");
  }
  return text;
}

std::string TableAsText(const SummaryTable& table) {
  if (table.rows.size() == 1 && table.columns.size() > 6) return RowAsLines(table);
  std::vector<std::vector<std::string>> lines = {{}};
  for (const std::string& column : table.columns) lines[0].push_back(Printable(column));
  const int count = static_cast<int>(table.rows.size());
  for (const int row : ChooseRows(count, table.name == "config" ? count : kMostTextRows)) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const SummaryCell& cell : table.rows[row]) line.push_back(Printable(cell.text));
  }
  std::string text = AlignedColumns(lines, "  ");
  if (static_cast<int>(lines.size()) - 1 < count) {
    absl::StrAppend(&text, "  (", lines.size() - 1, " of ", count, " rows; --format json has all)\n");
  }
  return text;
}

// The first and the last ones, because a run that skips steps for hours warns at each.
void AppendRecords(const std::vector<TextRecord>& records, const char* kind, const char* kinds, std::string& text) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (i == kTextsAtEachEnd && records.size() > 2 * kTextsAtEachEnd) {
      absl::StrAppend(&text, "  (", records.size() - 2 * kTextsAtEachEnd, " more ", kinds, " in ", kMetricsName, ")\n");
      i = records.size() - kTextsAtEachEnd;
    }
    absl::StrAppend(&text, "  ", kind, ", step ", HumanCount(records[i].step), ": ", PrintableMessage(records[i].text),
                    "\n");
  }
}

OrderedJson PartsToJson(const TimeParts& parts) {
  OrderedJson json;
  for (const TimePart& part : kTimeParts) json[part.name] = parts.*part.seconds;
  return json;
}

OrderedJson RecordsToJson(const std::vector<TextRecord>& records) {
  OrderedJson json = OrderedJson::array();
  for (const TextRecord& record : records) json.push_back({{"step", record.step}, {"text", record.text}});
  return json;
}

OrderedJson StageToJson(const RunRecord& run, const RunSummary& times, size_t index) {
  const StageTimes& stage = times.stages[index];
  OrderedJson json{{"stage", index}};
  for (const StageTimePart& part : kStageTimeParts) json[absl::StrCat(part.name, "_seconds")] = stage.*part.seconds;
  if (index < times.beyond_costs.size()) json["compute_beyond_costs"] = times.beyond_costs[index];
  if (index < times.memory.size()) {
    json["arena_bytes"] = times.memory[index].arena_bytes;
    json["predicted_bytes"] = times.memory[index].arena_bytes + MemoryAllowance::Bytes(run.threads);
    json["held_bytes"] = times.memory[index].held_bytes;
    json["peak_resident_bytes"] = times.memory[index].peak_resident_bytes;
  }
  return json;
}

OrderedJson RunToJson(const RunRecord& run, const RunSummary& times) {
  const StepMetrics& last = run.steps.back();
  OrderedJson json{{"name", run.name},
                   {"directory", run.directory},
                   {"model", run.model},
                   {"parameters", run.parameters},
                   {"ranks", run.ranks},
                   {"threads", run.threads},
                   {"encoder_sublayers", run.encoder_sublayers},
                   {"steps", last.step},
                   {"loss", last.loss},
                   {"nll", last.nll},
                   {"ended", run.finish},
                   {"failure", run.failure},
                   {"steady_steps", times.steps},
                   {"step_seconds", times.step_seconds},
                   {"outside_seconds", times.outside_seconds},
                   {"target_tokens", times.tokens},
                   {"target_tokens_per_second", times.tokens_per_second()}};
  if (!run.validations.empty()) {
    json["validation_nll"] = run.validations.back().nll;
    if (run.validations.back().bleu) json["bleu"] = *run.validations.back().bleu;
    if (run.validations.back().wer) json["wer"] = *run.validations.back().wer;
  }
  json["diagnoses"] = RecordsToJson(run.diagnoses);
  json["warnings"] = RecordsToJson(run.warnings);
  if (times.parts) {
    json["step_parts_seconds"] = PartsToJson(*times.parts);
    json["wait_is_split"] = times.wait_is_split;
    json["slow_stage"] = DescribeSlowStage(times);
  }
  if (times.slowest_stage >= 0) {
    json["slowest_stage"] = times.slowest_stage;
    json["slowest_excess"] = times.slowest_excess;
  }
  for (size_t index = 0; index < times.stages.size(); ++index) {
    json["stages"].push_back(StageToJson(run, times, index));
  }
  if (!run.trace_path.empty()) json["trace"] = run.trace_path;
  return json;
}

OrderedJson PredictionToJson(const RunPrediction& prediction) {
  return {{"costs", prediction.costs},
          {"predicted_step_seconds", prediction.layout.step_seconds},
          {"measured_step_seconds", prediction.measured_seconds},
          {"step_error", prediction.StepError()},
          {"predicted_bytes", prediction.predicted_bytes},
          {"measured_bytes", prediction.measured_bytes},
          {"model_tflops_per_second", prediction.model_tflops},
          {"utilisation", prediction.utilisation},
          {"roofline_share", prediction.roofline_share}};
}

OrderedJson ScalingToJson(const Summary& summary, const Scaling& scaling) {
  OrderedJson json{{"kind", ToString(scaling.kind)}};
  for (const ScalingRow& row : scaling.rows) {
    json["rows"].push_back({{"run", summary.runs[row.run].directory},
                            {"name", summary.runs[row.run].name},
                            {"cores", row.cores},
                            {"ranks", summary.runs[row.run].ranks},
                            {"threads", summary.runs[row.run].threads},
                            {"step_seconds", row.step_seconds},
                            {"target_tokens", row.tokens},
                            {"target_tokens_per_second", row.tokens_per_second},
                            {"speedup", row.speedup},
                            {"efficiency", row.efficiency},
                            {"lost_share", 1 - row.efficiency},
                            {"causes", PartsToJson(row.causes)},
                            {"largest_loss", DescribeLoss(row, summary.summaries[row.run])}});
  }
  return json;
}

OrderedJson TableToJson(const SummaryTable& table) {
  OrderedJson json{{"name", table.name},
                   {"run", table.run},
                   {"title", table.title},
                   {"columns", table.columns},
                   {"rows", OrderedJson::array()}};
  json["values"] = OrderedJson::array();
  for (const std::vector<SummaryCell>& row : table.rows) {
    OrderedJson texts = OrderedJson::array(), values = OrderedJson::array();
    for (const SummaryCell& cell : row) {
      texts.push_back(cell.text);
      values.push_back(cell.value ? OrderedJson(*cell.value) : OrderedJson());
    }
    json["rows"].push_back(std::move(texts));
    json["values"].push_back(std::move(values));
  }
  json["note"] = table.note;
  return json;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string SummaryToText(const Summary& summary) {
  std::string text;
  for (const RunRecord& run : summary.runs) {
    absl::StrAppend(&text, Printable(run.name), ": ", run.model, ", ", HumanCount(run.parameters), " parameters\n");
    if (!run.failure.empty()) absl::StrAppend(&text, "  failed: ", PrintableMessage(run.failure), "\n");
    AppendRecords(run.diagnoses, "diagnosis", "diagnoses", text);
    AppendRecords(run.warnings, "warning", "warnings", text);
  }
  for (const SummaryTable& table : MakeTables(summary)) {
    absl::StrAppend(&text, "\n", Printable(table.title), "\n", TableAsText(table));
    if (!table.note.empty()) absl::StrAppend(&text, "  ", PrintableMessage(table.note), "\n");
  }
  if (!summary.no_predictions.empty()) {
    absl::StrAppend(&text, "\nNo prediction: ", PrintableMessage(summary.no_predictions), "\n");
  }
  if (!summary.no_scaling.empty()) {
    absl::StrAppend(&text, "\nNo scaling: ", PrintableMessage(summary.no_scaling), "\n");
  }
  return text;
}

std::string SummaryToJson(const Summary& summary) {
  OrderedJson json;
  for (size_t i = 0; i < summary.runs.size(); ++i) {
    json["runs"].push_back(RunToJson(summary.runs[i], summary.summaries[i]));
    if (!summary.predictions.empty()) json["runs"].back()["prediction"] = PredictionToJson(summary.predictions[i]);
  }
  if (summary.scaling) json["scaling"] = ScalingToJson(summary, *summary.scaling);
  if (!summary.no_predictions.empty()) json["no_predictions"] = summary.no_predictions;
  if (!summary.no_scaling.empty()) json["no_scaling"] = summary.no_scaling;
  for (const SummaryTable& table : MakeTables(summary)) json["tables"].push_back(TableToJson(table));
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string SummaryToCsv(const Summary& summary) {
  std::string csv = "table,row,column,value\n";
  for (const SummaryTable& table : MakeTables(summary)) {
    for (const std::vector<SummaryCell>& row : table.rows) {
      for (size_t i = 1; i < row.size(); ++i) {
        const std::string value = row[i].value ? OrderedJson(*row[i].value).dump() : row[i].text;
        absl::StrAppend(&csv, CsvField(table.title), ",", CsvField(row[0].text), ",", CsvField(table.columns[i]), ",",
                        CsvField(value), "\n");
      }
    }
  }
  return csv;
}

}  // namespace hadal
