#include "tools/output/metrics_jsonl.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/output/stage_time_parts.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kLineBegin[] = R"({"event":)";  // of every line, whole or cut short

std::string Dump(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// Whether a line remains valid for a run that continues at `first_step`. Events without a number hold; a line that is
// none of hadal's does not.
bool StillHolds(const OrderedJson& line, int64_t first_step) {
  if (!line.is_object()) return false;
  const auto step = line.find("step");
  return step == line.end() || (step->is_number_integer() && step->get<int64_t>() < first_step);
}

// REQUIRES: StillHolds.
bool IsStep(const OrderedJson& line) {
  const auto event = line.find("event");
  return event != line.end() && *event == "step" && line.contains("step");
}

// What an earlier attempt has left at the path of the metrics.
struct Earlier {
  int64_t bytes = 0;      // the length of the part that remains valid
  bool ours = true;       // it has a line of hadal's, or none at all
  int64_t last_step = 0;  // of that part; 0: none
};

// For a run that continues at `first_step`. Searched from the end: steps ascend, so everything before a step that
// remains is kept, and a file of gigabytes need not be read.
absl::StatusOr<Earlier> LookAtEarlier(const std::string& path, int64_t first_step) {
  HADAL_ASSIGN_OR_RETURN(ReverseLines lines, ReverseLines::Open(path));
  int64_t bytes = lines.begin();
  bool ours = bytes == 0;
  std::string text;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool more, lines.Next(text));
    if (!more) return Earlier{.bytes = bytes, .ours = ours};
    ours = ours || absl::StartsWith(text, kLineBegin);
    const OrderedJson line = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!lines.complete() || !StillHolds(line, first_step)) {
      bytes = lines.begin();
    } else if (IsStep(line)) {
      return Earlier{.bytes = bytes, .last_step = line["step"].get<int64_t>()};
    }
  }
}

// Appends the first `bytes` bytes of the file `path` to `to`, of the name `to_path`.
absl::Status CopyBeginning(const std::string& path, int64_t bytes, const FileDescriptor& to,
                           const std::string& to_path) {
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor from, OpenFile(path));
  std::string block;
  constexpr int64_t kBlockBytes = int64_t{1} << 20;
  for (int64_t at = 0; at < bytes; at += kBlockBytes) {
    block.resize(static_cast<size_t>(std::min(kBlockBytes, bytes - at)));
    HADAL_RETURN_IF_ERROR(ReadAt(from, at, static_cast<int64_t>(block.size()), block.data(), path));
    HADAL_RETURN_IF_ERROR(WriteAll(to, block, to_path));
  }
  return SyncFile(to, to_path);
}

// Copies the part of `path` that remains valid to `own_path`, and returns that file, open for appending.
// `earlier`: what is at `path`.
absl::StatusOr<FileDescriptor> CopyEarlierSteps(const std::string& path, int64_t first_step,
                                                const std::string& own_path, Earlier& earlier) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::symlink_status(path, error);
  const bool exists = found.type() != std::filesystem::file_type::not_found;
  if (exists && !std::filesystem::is_regular_file(found)) {
    return FailedPreconditionError(path, ": is not a regular file; move it away");
  }
  HADAL_RETURN_IF_ERROR(RemoveTree(own_path));
  HADAL_ASSIGN_OR_RETURN(FileDescriptor own, OpenForAppending(own_path));
  if (!exists) return own;
  HADAL_ASSIGN_OR_RETURN(earlier, LookAtEarlier(path, first_step));
  HADAL_RETURN_IF_ERROR(CopyBeginning(path, earlier.ours ? earlier.bytes : 0, own, own_path));
  return own;
}

OrderedJson ToJson(const StageTimes& times) {
  OrderedJson json;
  for (const StageTimePart& part : kStageTimeParts) json[part.name] = times.*part.seconds;
  return json;
}

// Four digits are enough for a plot, and a deep model has thousands of these numbers.
double FourDigits(float value) { return std::strtod(absl::StrFormat("%.3e", value).c_str(), nullptr); }

// NaN means "no such tensor", infinity a value that is not finite.
OrderedJson DepthValue(float value) {
  return std::isinf(value) ? OrderedJson("not finite") : OrderedJson(FourDigits(value));
}

void AddOptional(OrderedJson& json, const char* key, const std::optional<double>& value) {
  if (value.has_value()) json[key] = *value;
}

void AddScores(OrderedJson& json, const std::optional<TranslationScores>& scores) {
  if (!scores) return;
  json["bleu"] = scores->bleu;
  json["chrf"] = scores->chrf;
  json["wer"] = scores->word_error_rate;
  json["cer"] = scores->character_error_rate;
}

}  // namespace

bool IsDepthStep(int64_t step, int64_t every) {
  while (step / 100 >= every) every *= 10;
  return step == 1 || step % every == 0;
}

absl::StatusOr<std::unique_ptr<MetricsJsonl>> MetricsJsonl::Open(const Options& options) {
  const std::string own_path = absl::StrCat(options.path, ".", options.attempt);
  const std::string aside = absl::StrCat(options.path, kReplacedInfix, options.attempt);
  Earlier earlier;
  absl::StatusOr<FileDescriptor> file = CopyEarlierSteps(options.path, options.first_step, own_path, earlier);
  absl::Status status = WithPath(file.status(), own_path, options.path);
  if (status.ok() && options.may_write) status = options.may_write();
  if (status.ok() && !earlier.ours) status = RenamePath(options.path, aside);
  if (status.ok()) status = RenamePath(own_path, options.path);
  if (!status.ok()) {
    RemoveTree(own_path).IgnoreError();
    return status;
  }
  auto sink = std::unique_ptr<MetricsJsonl>(new MetricsJsonl(options, *std::move(file)));
  if (!earlier.ours) sink->Warn(absl::StrCat(options.path, " had no line of hadal's; it is now ", aside));
  if (earlier.last_step > 0 && earlier.last_step + 1 < options.first_step) {
    const std::string text =
        absl::StrCat(options.path, " has no lines of the steps ", earlier.last_step + 1, " to ", options.first_step - 1,
                     ": an earlier attempt could not write them, or did other steps");
    sink->OnText(options.first_step, TextKind::kWarning, text);
    sink->Warn(text);
  }
  return sink;
}

void MetricsJsonl::OnStart(const RunInfo& run) {
  WriteLine(Dump({{"event", "run"},
                  {"attempt", run.attempt},
                  {"model", run.model},
                  {"parameters", run.parameters},
                  {"source_vocabulary", run.source_vocabulary},
                  {"frame_width", run.frame_width},
                  {"target_vocabulary", run.target_vocabulary},
                  {"encoder_sublayers", run.encoder_sublayers},
                  {"decoder_sublayers", run.decoder_sublayers},
                  {"ranks", run.ranks},
                  {"stages", run.stages},
                  {"replicas", run.replicas},
                  {"free_links", run.free_links},
                  {"threads", run.threads},
                  {"recompute_every", run.recompute_every},
                  {"layout", run.layout},
                  {"first_step", run.first_step},
                  {"total_steps", run.total_steps}}));
}

void MetricsJsonl::OnStep(const StepMetrics& metrics) {
  step_ = metrics.step;
  OrderedJson json = {{"event", "step"},
                      {"step", metrics.step},
                      {"update", metrics.update},
                      {"loss", metrics.loss},
                      {"nll", metrics.nll},
                      {"perplexity", metrics.perplexity},
                      {"learning_rate", metrics.learning_rate},
                      {"gradient_norm", metrics.gradient_norm},
                      {"target_tokens", metrics.target_tokens},
                      {"tokens_per_second", metrics.tokens_per_second},
                      {"step_seconds", metrics.step_seconds},
                      {"elapsed_seconds", metrics.elapsed_seconds},
                      {"epoch", metrics.epoch},
                      {"skipped", metrics.skipped}};
  for (const auto& [corpus, tokens] : metrics.corpus_tokens) json["corpus_tokens"][corpus] = tokens;
  AddOptional(json, "measured_bubble", metrics.measured_bubble);
  AddOptional(json, "analytic_bubble", metrics.analytic_bubble);
  for (size_t stage = 0; stage < metrics.stages.size(); ++stage) {
    json["stages"].push_back(ToJson(metrics.stages[stage]));
    if (metrics.stages[stage].launches > 0) json["stages"].back()["launches"] = metrics.stages[stage].launches;
    if (stage >= metrics.memory.size()) continue;
    json["stages"].back()["arena_bytes"] = metrics.memory[stage].arena_bytes;
    json["stages"].back()["held_bytes"] = metrics.memory[stage].held_bytes;
    json["stages"].back()["peak_resident_bytes"] = metrics.memory[stage].peak_resident_bytes;
    if (metrics.memory[stage].graph_bytes > 0) {
      json["stages"].back()["graph_bytes"] = metrics.memory[stage].graph_bytes;
    }
  }
  if (options_.depth_every_steps > 0 && IsDepthStep(metrics.step, options_.depth_every_steps)) {
    for (const float norm : metrics.depth_gradient_norms) {
      json["depth_gradient_norms"].push_back(FourDigits(norm));
    }
  }
  WriteLine(Dump(json));
}

void MetricsJsonl::OnDepth(const DepthMetrics& metrics) {
  OrderedJson json = {{"event", "depth"}, {"step", metrics.step}, {"update", metrics.update}};
  AddOptional(json, "model_update", metrics.model_update);
  json["seconds"] = metrics.seconds;
  for (size_t s = 0; s < kDepthSeriesCount; ++s) {
    for (const float value : metrics.series[s]) json[kDepthSeries[s].name].push_back(DepthValue(value));
  }
  WriteLine(Dump(json));
}

void MetricsJsonl::OnValidation(const ValidationMetrics& metrics) {
  OrderedJson json = {
      {"event", "validation"}, {"step", metrics.step}, {"nll", metrics.nll}, {"perplexity", metrics.perplexity}};
  if (metrics.accuracy.has_value()) json["accuracy"] = *metrics.accuracy;
  AddScores(json, metrics.scores);
  json["best"] = metrics.best;
  json["sentences"] = metrics.sentences;
  json["seconds"] = metrics.seconds;
  for (const CorpusValidation& corpus : metrics.corpora) {
    OrderedJson& of_corpus = json["corpora"][corpus.corpus];
    of_corpus = {{"nll", corpus.nll}, {"target_tokens", corpus.target_tokens}};
    AddScores(of_corpus, corpus.scores);
  }
  WriteLine(Dump(json));
}

void MetricsJsonl::OnCheckpoint(const CheckpointMetrics& metrics) {
  WriteLine(Dump({{"event", metrics.in_memory ? "copy" : "checkpoint"},
                  {"step", metrics.step},
                  {"directory", metrics.directory},
                  {"seconds", metrics.seconds},
                  {"stall_seconds", metrics.stall_seconds},
                  {"interval_seconds", metrics.interval_seconds}}));
}

void MetricsJsonl::OnText(int64_t step, TextKind kind, std::string_view text) {
  WriteLine(Dump({{"event", TextKindName(kind)}, {"step", step}, {"text", std::string(text)}}));
}

void MetricsJsonl::OnFinish(std::string_view reason) {
  WriteLine(Dump({{"event", "finish"}, {"reason", std::string(reason)}}));
}

absl::Status MetricsJsonl::Flush() {
  const absl::Status written = file_.WriteHeld();
  if (written.ok()) TellOfHeldLines(written);
  return written;
}

void MetricsJsonl::WriteLine(std::string line) {
  line += '\n';
  TellOfHeldLines(file_.Append(std::move(line)));
}

void MetricsJsonl::Warn(const std::string& text) const {
  if (options_.warn) options_.warn(text);
}

void MetricsJsonl::TellOfHeldLines(const absl::Status& written) {
  if (written.ok() != holding_) return;
  holding_ = !written.ok();
  if (holding_) {
    return Warn(absl::StrCat(written.message(), "; lines of the metrics are held in memory until they can be written"));
  }
  const int64_t lost = file_.TakeLost();
  const std::string text =
      absl::StrCat(options_.path, ": can be written again; ",
                   lost == 0 ? "no line is lost" : absl::StrCat(lost, " line(s) before this one are lost"));
  OnText(step_, lost == 0 ? TextKind::kNotice : TextKind::kWarning, text);
  Warn(text);
}

}  // namespace hadal
