#include "tools/output/tensorboard.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "runtime/attempt_name.h"
#include "runtime/bytes.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/machine.h"
#include "runtime/mapped_file.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/output/stage_time_parts.h"
#include "tools/output/tensorboard_event.pb.h"

namespace hadal {
namespace {

using tensorboard::Event;
using tensorboard::Histogram;
using tensorboard::Summary;

constexpr int kTensorFlowString = 7;

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Event EventAt(int64_t step) {
  Event event;
  event.set_wall_time(WallSeconds());
  event.set_step(step);
  return event;
}

void AddScalar(Summary& summary, const std::string& tag, double value) {
  Summary::Value* entry = summary.add_value();
  entry->set_tag(tag);
  entry->set_simple_value(static_cast<float>(value));
}

void AddOptional(Summary& summary, const std::string& tag, const std::optional<double>& value) {
  if (value.has_value()) AddScalar(summary, tag, *value);
}

// Under `tag`/.
void AddScores(Summary& summary, const std::string& tag, const std::optional<TranslationScores>& scores) {
  if (!scores) return;
  AddScalar(summary, absl::StrCat(tag, "/bleu"), scores->bleu);
  AddScalar(summary, absl::StrCat(tag, "/chrf"), scores->chrf);
  AddScalar(summary, absl::StrCat(tag, "/wer"), scores->word_error_rate);
  AddScalar(summary, absl::StrCat(tag, "/cer"), scores->character_error_rate);
}

void AddStages(Summary& summary, const std::vector<StageTimes>& stages) {
  for (size_t k = 0; k < stages.size(); ++k) {
    for (const StageTimePart& part : kStageTimeParts) {
      AddScalar(summary, absl::StrCat("pipe/stage_", k, "/", part.name), stages[k].*part.seconds);
    }
  }
}

// log10 of the positive finite norms.
std::vector<double> Log10Norms(absl::Span<const float> norms) {
  std::vector<double> logs;
  for (const float norm : norms) {
    if (std::isfinite(norm) && norm > 0) logs.push_back(std::log10(static_cast<double>(norm)));
  }
  return logs;
}

// Ten buckets per decade.
void AddHistogram(Summary& summary, const std::string& tag, const std::vector<double>& values) {
  constexpr double kBucketsPerUnit = 10;
  if (values.empty()) return;
  Summary::Value* entry = summary.add_value();
  entry->set_tag(tag);
  Histogram* histogram = entry->mutable_histogram();
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  histogram->set_min(*low);
  histogram->set_max(*high);
  histogram->set_num(static_cast<double>(values.size()));
  const auto bucket_of = [](double value) { return static_cast<int>(std::floor(value * kBucketsPerUnit)); };
  const int first = bucket_of(*low);
  std::vector<double> counts(bucket_of(*high) - first + 1);
  double sum = 0;
  double sum_squares = 0;
  for (const double value : values) {
    counts[bucket_of(value) - first] += 1;
    sum += value;
    sum_squares += value * value;
  }
  histogram->set_sum(sum);
  histogram->set_sum_squares(sum_squares);
  for (size_t i = 0; i < counts.size(); ++i) {
    histogram->add_bucket_limit((first + static_cast<double>(i) + 1) / kBucketsPerUnit);
    histogram->add_bucket(counts[i]);
  }
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void AddMean(Summary& summary, const std::string& tag, absl::Span<const float> values, bool geometric) {
  std::vector<double> numbers = Log10Norms(values);
  if (!geometric) {
    numbers.clear();
    std::copy_if(values.begin(), values.end(), std::back_inserter(numbers), [](float v) { return std::isfinite(v); });
  }
  if (numbers.empty()) return;
  AddScalar(summary, tag, geometric ? std::pow(10.0, Mean(numbers)) : Mean(numbers));
}

// `least`: the fewest lowest and highest sublayers to average; 3 include one of each kind.
void AddSide(Summary& summary, const std::string& tag, absl::Span<const float> values, bool geometric, size_t least) {
  if (values.empty()) return;
  const size_t tenth = std::min(values.size(), std::max(least, values.size() / 10));
  AddMean(summary, absl::StrCat(tag, "_bottom"), values.first(tenth), geometric);
  AddMean(summary, absl::StrCat(tag, "_top"), values.last(tenth), geometric);
}

void AddSides(Summary& summary, const std::string& series, const std::vector<float>& values, int32_t encoder_sublayers,
              bool geometric, size_t least) {
  const size_t border = std::min(values.size(), static_cast<size_t>(encoder_sublayers));
  const absl::Span<const float> all(values);
  AddSide(summary, absl::StrCat("depth/", series, "/encoder"), all.first(border), geometric, least);
  AddSide(summary, absl::StrCat("depth/", series, "/decoder"), all.subspan(border), geometric, least);
}

// TensorBoard renders Markdown; a code block keeps the lines of a translation or a config, and "<unk>".
std::string CodeBlock(std::string_view text) {
  return absl::StrCat("    ", absl::StrReplaceAll(absl::string_view(text.data(), text.size()), {{"\n", "\n    "}}));
}

// Begin the names of event files (EventsName), and of one that is being written: TensorBoard reads only names with
// "tfevents". An attempt follows.
constexpr char kEventsPrefix[] = "events.out.tfevents.";
constexpr char kEventsBeingWritten[] = "events.";

// Whether `name` is one of EventsName. Other programs' event files end in a process id and a number.
bool IsOurs(const std::string& name) {
  const size_t dot = name.rfind('.');
  return absl::StartsWith(name, kEventsPrefix) && IsAttempt(std::string_view(name).substr(dot + 1));
}

// Returns the paths of earlier attempts' files, in the order in which TensorBoard reads them. Removes those that an
// attempt has left unfinished.
absl::StatusOr<std::vector<std::string>> EarlierFiles(const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(directory));
  std::sort(names.begin(), names.end());
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    std::error_code error;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error))) continue;
    if (IsOurs(name)) paths.push_back(path);
    const bool unfinished = absl::StartsWith(name, kEventsBeingWritten) &&
                            IsAttempt(std::string_view(name).substr(sizeof(kEventsBeingWritten) - 1));
    if (unfinished) HADAL_RETURN_IF_ERROR(RemoveTree(path));
  }
  return paths;
}

// Calls visit(data, event) for the events of a file until it returns false. Leaves out damaged ones.
template <typename Visit>
absl::Status VisitEvents(const std::string& path, const Visit& visit) {
  HADAL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::optional<std::string_view> data;
  Event event;
  while (TakeRecord(rest, data)) {
    const bool readable = data && event.ParseFromArray(data->data(), static_cast<int>(data->size()));
    if (readable && !visit(*data, event)) break;
  }
  return absl::OkStatus();
}

// Writes the first events of a file, and what remains valid of `files` for a run that continues at `first_step`, to
// `own_path`; returns that file, open for appending.
absl::StatusOr<FileDescriptor> CopyEarlierSteps(const std::vector<std::string>& files, int64_t first_step,
                                                const std::string& own_path) {
  HADAL_RETURN_IF_ERROR(RemoveTree(own_path));
  HADAL_ASSIGN_OR_RETURN(FileDescriptor own, OpenForAppending(own_path));
  // Of each file the steps before the starts of all later ones.
  std::vector<int64_t> limits(files.size());
  for (size_t i = files.size(); i-- > 0; limits[i] = first_step) {
    if (i + 1 == files.size()) continue;
    HADAL_RETURN_IF_ERROR(VisitEvents(files[i + 1], [&](std::string_view, const Event& event) {
      if (event.has_session_log()) first_step = std::min(first_step, event.step());
      return !event.has_session_log();
    }));
  }
  Event version = EventAt(0), start = EventAt(0);
  version.set_file_version("brain.Event:2");
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  std::string frames = FrameRecord(version.SerializeAsString()) + FrameRecord(start.SerializeAsString());
  constexpr size_t kBlockBytes = size_t{1} << 20;
  absl::Status status;
  for (size_t i = 0; i < files.size() && status.ok(); ++i) {
    status.Update(VisitEvents(files[i], [&](std::string_view data, const Event& event) {
      if (event.has_summary() && event.step() < limits[i]) frames += FrameRecord(data);
      if (frames.size() < kBlockBytes) return true;
      status = WriteAll(own, std::exchange(frames, ""), own_path);
      return status.ok();
    }));
  }
  status.Update(WriteAll(own, frames, own_path));
  status.Update(SyncFile(own, own_path));
  if (!status.ok()) return status;
  return own;
}

void AddDepth(Summary& summary, const std::vector<float>& norms, int32_t encoder_sublayers) {
  AddHistogram(summary, "depth/log10_gradient_norm", Log10Norms(norms));
  AddSides(summary, "gradient_norm", norms, encoder_sublayers, /*geometric=*/true, /*least=*/1);
}

}  // namespace

std::string FrameRecord(std::string_view data) {
  std::string frame;
  frame.reserve(data.size() + 16);
  AppendValue(uint64_t{data.size()}, frame);
  AppendValue(MaskCrc32c(Crc32c(frame.data(), frame.size())), frame);
  frame += data;
  AppendValue(MaskCrc32c(Crc32c(data.data(), data.size())), frame);
  return frame;
}

bool TakeRecord(std::string_view& in, std::optional<std::string_view>& data) {
  std::string_view rest = in;
  uint64_t bytes = 0;
  uint32_t checksum = 0;
  if (!TakeValue(rest, bytes) || !TakeValue(rest, checksum)) return false;
  if (checksum != MaskCrc32c(Crc32c(in.data(), sizeof(bytes)))) return false;
  if (rest.size() < sizeof(checksum) || rest.size() - sizeof(checksum) < bytes) return false;
  const std::string_view content = rest.substr(0, bytes);
  rest.remove_prefix(bytes);
  TakeValue(rest, checksum);
  const bool whole = checksum == MaskCrc32c(Crc32c(content.data(), content.size()));
  data = whole ? std::optional(content) : std::nullopt;
  in = rest;
  return true;
}

absl::StatusOr<std::unique_ptr<TensorBoard>> TensorBoard::Open(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) return PermissionDeniedError(options.directory, ": cannot be created: ", error.message());
  const std::string name = EventsName(static_cast<int64_t>(WallSeconds()), HostName(), options.attempt);
  const std::string path = JoinPath(options.directory, name);
  const std::string own_path = JoinPath(options.directory, absl::StrCat(kEventsBeingWritten, options.attempt));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> earlier, EarlierFiles(options.directory));
  absl::StatusOr<FileDescriptor> file = CopyEarlierSteps(earlier, options.first_step, own_path);
  absl::Status status = WithPath(file.status(), own_path, path);
  if (status.ok() && options.may_write) status = options.may_write();
  if (status.ok()) status = RenamePath(own_path, path);
  if (!status.ok()) {
    RemoveTree(own_path).IgnoreError();
    return status;
  }
  for (const std::string& old : earlier) {
    std::error_code error;
    const bool empty = std::filesystem::file_size(old, error) == 0;
    HADAL_RETURN_IF_ERROR(empty ? RemoveTree(old) : ReplaceFile(old, "", options.attempt));
  }
  return std::unique_ptr<TensorBoard>(new TensorBoard(options, WholeAppender(*std::move(file), path)));
}

void TensorBoard::OnStart(const RunInfo& run) {
  run_ = run;
  if (!options_.config.empty()) AppendText(run.first_step, "config", CodeBlock(options_.config));
}

void TensorBoard::OnStep(const StepMetrics& metrics) {
  Event event = EventAt(metrics.step);
  Summary& summary = *event.mutable_summary();
  AddScalar(summary, "train/loss", metrics.loss);
  AddScalar(summary, "train/nll", metrics.nll);
  AddScalar(summary, "train/ppl", metrics.perplexity);
  AddScalar(summary, "train/lr", metrics.learning_rate);
  AddScalar(summary, "train/gradient_norm", metrics.gradient_norm);
  AddScalar(summary, "train/epoch", metrics.epoch);
  if (metrics.skipped) AddScalar(summary, "train/skipped", 1);
  AddScalar(summary, "perf/tokens_per_second", metrics.tokens_per_second);
  AddScalar(summary, "perf/step_seconds", metrics.step_seconds);
  AddOptional(summary, "pipe/bubble/measured", metrics.measured_bubble);
  AddOptional(summary, "pipe/bubble/analytic", metrics.analytic_bubble);
  AddStages(summary, metrics.stages);
  if (options_.depth_every_steps > 0 && (metrics.step == 1 || metrics.step % options_.depth_every_steps == 0)) {
    AddDepth(summary, metrics.depth_gradient_norms, run_.encoder_sublayers);
  }
  Append(event.SerializeAsString());
}

void TensorBoard::OnDepth(const DepthMetrics& metrics) {
  Event event = EventAt(metrics.step);
  Summary& summary = *event.mutable_summary();
  AddOptional(summary, "depth/model_update", metrics.model_update);
  for (size_t s = 0; s < kDepthSeriesCount; ++s) {
    AddSides(summary, kDepthSeries[s].name, metrics.series[s], run_.encoder_sublayers, kDepthSeries[s].logarithmic, 3);
  }
  Append(event.SerializeAsString());
}

void TensorBoard::OnValidation(const ValidationMetrics& metrics) {
  Event event = EventAt(metrics.step);
  Summary& summary = *event.mutable_summary();
  AddScalar(summary, "valid/nll", metrics.nll);
  AddScalar(summary, "valid/ppl", metrics.perplexity);
  if (metrics.accuracy.has_value()) AddScalar(summary, "valid/accuracy", *metrics.accuracy);
  AddScores(summary, "valid", metrics.scores);
  for (const CorpusValidation& corpus : metrics.corpora) {
    const std::string tag = absl::StrCat("corpora/", corpus.corpus);
    AddScalar(summary, absl::StrCat(tag, "/nll"), corpus.nll);
    AddScores(summary, tag, corpus.scores);
  }
  Append(event.SerializeAsString());
}

void TensorBoard::OnCheckpoint(const CheckpointMetrics& metrics) {
  if (metrics.in_memory) return;
  Event event = EventAt(metrics.step);
  Summary& summary = *event.mutable_summary();
  AddScalar(summary, "checkpoint/seconds", metrics.seconds);
  AddScalar(summary, "checkpoint/stall_seconds", metrics.stall_seconds);
  Append(event.SerializeAsString());
}

void TensorBoard::OnText(int64_t step, TextKind kind, std::string_view text) {
  AppendText(step, TextKindName(kind), kind == TextKind::kSample ? CodeBlock(text) : std::string(text));
}

void TensorBoard::AppendText(int64_t step, const std::string& tag, std::string text) {
  Event event = EventAt(step);
  Summary::Value* entry = event.mutable_summary()->add_value();
  entry->set_tag(tag);
  entry->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  entry->mutable_tensor()->set_dtype(kTensorFlowString);
  entry->mutable_tensor()->add_string_val(std::move(text));
  Append(event.SerializeAsString());
}

absl::Status TensorBoard::Flush() { return file_.WriteHeld(); }

void TensorBoard::Append(const std::string& event) {
  file_.Append(FrameRecord(event)).IgnoreError();
}  // Flush reports it

}  // namespace hadal
