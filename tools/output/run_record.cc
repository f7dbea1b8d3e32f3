#include "tools/output/run_record.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/output/append_whole.h"
#include "tools/output/stage_time_parts.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

// null means a number that was not finite.
double Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return 0;
  return found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> OptionalNumber(const Json& json, const char* key) {
  return json.contains(key) ? std::optional<double>(Number(json, key)) : std::nullopt;
}

int64_t Integer(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<int64_t>() : 0;
}

std::string String(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

void ReadStages(const Json& json, StepMetrics& step) {
  if (!json.contains("stages")) return;
  for (const Json& stage : json["stages"]) {
    StageTimes& times = step.stages.emplace_back();
    for (const StageTimePart& part : kStageTimeParts) times.*part.seconds = Number(stage, part.name);
    if (!stage.contains("arena_bytes")) continue;
    step.memory.push_back({.arena_bytes = Integer(stage, "arena_bytes"),
                           .held_bytes = Integer(stage, "held_bytes"),
                           .peak_resident_bytes = Integer(stage, "peak_resident_bytes")});
  }
}

StepMetrics ReadStep(const Json& json) {
  StepMetrics step{.step = Integer(json, "step"),
                   .loss = Number(json, "loss"),
                   .nll = Number(json, "nll"),
                   .target_tokens = Integer(json, "target_tokens"),
                   .step_seconds = Number(json, "step_seconds"),
                   .elapsed_seconds = Number(json, "elapsed_seconds"),
                   .skipped = json.contains("skipped") && json["skipped"] == true};
  ReadStages(json, step);
  return step;
}

void AddRecord(const Json& json, RunRecord& run) {
  const std::string event = String(json, "event");
  if (event == "run") {
    run.finish.clear();
    run.starts.push_back(run.steps.size());
    const int ranks = static_cast<int>(std::max<int64_t>(1, Integer(json, "ranks")));
    const int threads = static_cast<int>(std::max<int64_t>(1, Integer(json, "threads")));
    const int replicas = static_cast<int>(std::max<int64_t>(1, Integer(json, "replicas")));
    std::optional<int> recompute_every;
    if (json.contains("recompute_every")) recompute_every = static_cast<int>(Integer(json, "recompute_every"));
    std::string layout = String(json, "layout");
    if (std::tie(ranks, threads, replicas, recompute_every, layout) !=
        std::tie(run.ranks, run.threads, run.replicas, run.recompute_every, run.start_layout)) {
      run.layout_begins = run.steps.size();
    }
    run.ranks = ranks;
    run.threads = threads;
    run.replicas = replicas;
    run.recompute_every = recompute_every;
    run.start_layout = std::move(layout);
    run.model = String(json, "model");
    run.parameters = Integer(json, "parameters");
    run.source_vocabulary = static_cast<int32_t>(Integer(json, "source_vocabulary"));
    run.frame_width = static_cast<int32_t>(Integer(json, "frame_width"));
    run.target_vocabulary = static_cast<int32_t>(Integer(json, "target_vocabulary"));
    run.encoder_sublayers = static_cast<int32_t>(Integer(json, "encoder_sublayers"));
    run.free_links = json.value("free_links", Json()) == true;
  } else if (event == "step") {
    run.steps.push_back(ReadStep(json));
  } else if (event == "validation") {
    run.validations.push_back({Integer(json, "step"), Number(json, "nll"), OptionalNumber(json, "bleu"),
                               run.frame_width > 0 ? OptionalNumber(json, "wer") : std::nullopt});
  } else if (event == "notice" && absl::StartsWith(String(json, "text"), "the validation set is another one")) {
    run.validations.clear();  // they compare with none of the present set
  } else if (event == "warning") {
    run.warnings.push_back({Integer(json, "step"), String(json, "text")});
  } else if (event == "diagnosis") {
    run.diagnoses.push_back({Integer(json, "step"), String(json, "text")});
  } else if (event == "finish") {
    run.finish = String(json, "reason");
  }
}

// Leaves both fields as they are if the config cannot be read.
void ReadConfig(RunRecord& run) {
  const absl::StatusOr<config::RunConfig> config = LoadConfig({JoinPath(run.directory, kResolvedConfigName)}, {});
  if (!config.ok()) return;
  const absl::StatusOr<RunOptions> options = MakeRunOptions(*config);
  absl::StatusOr<std::vector<EffectiveValue>> values = EffectiveValues(*config);
  if (!options.ok() || !values.ok()) return;
  run.config = *std::move(values);
  const PipelineOptions& pipeline = options->train.pipeline;
  const int recompute_every = run.recompute_every.value_or(pipeline.recompute_every);  // chosen, with recompute_auto
  run.layout = LayoutRecord{.schedule = recompute_every > 0 ? WithOnePending(pipeline.schedule) : pipeline.schedule,
                            .shape = {.stages = pipeline.stages > 0 ? pipeline.stages : run.ranks / pipeline.replicas,
                                      .chunks = pipeline.chunks,
                                      .micro_batches = options->train.batch.micro_batches,
                                      .free_links = run.free_links},
                            .replicas = pipeline.replicas,
                            .outstanding_sends = pipeline.outstanding_sends,
                            .recompute_every = recompute_every,
                            .placement = pipeline.placement};
}

// "steps_90-92.json" → 90; −1 for other names.
int64_t FirstStepOf(const std::string& name) {
  if (!name.starts_with(kTracePrefix)) return -1;
  const size_t begin = std::string_view(kTracePrefix).size();
  const size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
  int64_t step = -1;
  return absl::SimpleAtoi(name.substr(begin, end - begin), &step) ? step : -1;
}

// The path of the trace of the latest steps, from `first_step` on; "" if there is none.
std::string LatestTrace(const std::string& directory, int64_t first_step) {
  const std::string traces = JoinPath(directory, kTracesName);
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(traces);
  if (!names.ok()) return "";
  std::erase_if(*names, [&](const std::string& name) {
    return !absl::EndsWith(name, ".json") || FirstStepOf(name) < first_step;
  });
  const auto latest = std::ranges::max_element(*names, {}, FirstStepOf);
  return latest == names->end() ? "" : JoinPath(traces, *latest);
}

// The message of the last "end: exit code N: …" in rank 0's log, if that start failed; "" otherwise.
std::string ReadFailure(const std::string& directory) {
  constexpr int kMostLines = 100;  // an error's message has few
  constexpr std::string_view kEnd = "end: exit code ", kStart = "start: ";
  absl::StatusOr<ReverseLines> lines = ReverseLines::Open(JoinPath(JoinPath(directory, kLogsName), RankLogName(0)));
  std::string line;
  for (int i = 0; lines.ok() && i < kMostLines && lines->Next(line).value_or(false); ++i) {
    const size_t space = line.find(' ');  // after the time
    const std::string_view text = space == std::string::npos ? "" : std::string_view(line).substr(space + 1);
    if (text.starts_with(kStart)) return "";  // has not ended
    if (!text.starts_with(kEnd)) continue;
    const size_t colon = text.find(": ", kEnd.size());
    return colon == std::string_view::npos ? "" : std::string(text.substr(colon + 2));  // without an error: no message
  }
  return "";
}

}  // namespace

absl::StatusOr<RunRecord> ReadRun(const std::string& directory) {
  const std::string path = JoinPath(directory, kMetricsName);
  HADAL_RETURN_IF_ERROR(OpenFile(path).status());  // rejects everything except files
  std::ifstream in(path, std::ios::binary);
  RunRecord run{.directory = directory};
  run.name = BaseName(directory);
  std::string line;
  int64_t lines = 0;
  for (; ReadLine(in, line); ++lines) {  // line by line, because long runs with many stages write gigabytes
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) AddRecord(json, run);
  }
  if (line.size() > kMostLineBytes) return ReadLineError(path, lines, line);
  if (in.bad()) return DataLossError(path, ": reading failed; check the disk");
  if (run.steps.empty()) return InvalidArgumentError(path, ": has no step; has the run started?");
  ReadConfig(run);
  if (run.finish.empty()) run.failure = ReadFailure(directory);
  int64_t first_step = -1;
  if (run.layout_begins > 0) {
    first_step = run.layout_begins < run.steps.size() ? run.steps[run.layout_begins].step : run.steps.back().step + 1;
  }
  run.trace_path = LatestTrace(directory, first_step);
  return run;
}

}  // namespace hadal
