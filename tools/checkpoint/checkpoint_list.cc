#include "tools/checkpoint/checkpoint_command.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

int64_t TotalBytes(const CheckpointManifest& manifest) {
  int64_t bytes = 0;
  for (const WrittenFile& file : manifest.files) bytes += file.bytes;
  for (const AttachedFile& file : manifest.attachments) bytes += file.bytes;
  return bytes;
}

int64_t Elements(const CheckpointManifest& manifest) {
  int64_t elements = 0;
  for (const CheckpointParameter& parameter : manifest.parameters) elements += parameter.elements();
  return elements;
}

std::string_view WhatIsWrong(const absl::Status& status) {
  if (absl::IsNotFound(status)) return "REMOVED";
  return IsDamage(status) ? "DAMAGED" : "UNREADABLE";
}

std::string Nll(double value) { return std::isfinite(value) ? absl::StrFormat("%.4f", value) : "-"; }

// The metric's name and a score of it; "" of an nll, which has a column of its own.
std::string ScoreText(const TrainingProgress& progress, const ScoredStep& scored) {
  if (progress.validation_metric == "nll") return "";
  const std::string name = progress.validation_metric.substr(0, progress.validation_metric.find(' '));
  return absl::StrFormat(" (%s %.2f)", name, scored.score);
}

// "  best", "  best 2", …: the place of a step in what `newest` lists.
std::string BestMark(const TrainingProgress& newest, int64_t step, bool is_best) {
  for (size_t i = 0; i < newest.best.size(); ++i) {
    if (newest.best[i].step != step || (i == 0 && !is_best)) continue;
    return absl::StrCat("  best", i > 0 ? absl::StrCat(" ", i + 1) : "", ScoreText(newest, newest.best[i]));
  }
  return is_best ? "  best" : "";
}

std::string Time(absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M:%S", time, absl::LocalTimeZone()); }

std::string Shape(const CheckpointParameter& parameter) {
  return parameter.is_vector ? absl::StrFormat("[%d]", parameter.rows)
                             : absl::StrFormat("[%d, %d]", parameter.rows, parameter.columns);
}

void PrintParameters(const CheckpointManifest& manifest, std::ostream& out) {
  for (const CheckpointParameter& parameter : manifest.parameters) {
    out << "  " << parameter.name << " " << Shape(parameter) << "\n";
  }
}

void PrintOne(const CheckpointReader& reader, bool parameters, std::ostream& out) {
  const CheckpointManifest& manifest = reader.manifest();
  const TrainingProgress& progress = manifest.progress;
  out << absl::StrFormat("%s\n  step %d, update %d, %.2f epochs, %d target tokens, seed %d\n", reader.directory(),
                         progress.step, progress.update, progress.epochs_done, progress.target_tokens_seen,
                         progress.seed);
  out << absl::StrFormat("  validation nll %s, best %s\n", Nll(progress.validation_nll),
                         progress.best.empty() ? "-"
                         : progress.validation_metric == "nll"
                             ? Nll(progress.best.front().score)
                             : absl::StrCat("step ", progress.best_step(), ScoreText(progress, progress.best.front())));
  out << absl::StrFormat("  written %s by attempt %s\n", Time(manifest.time), manifest.attempt);
  out << absl::StrFormat("  %d parameters of %d elements, %s; %d bytes, plan %016x\n", manifest.parameters.size(),
                         Elements(manifest),
                         !manifest.has_moments ? "weights only"
                         : manifest.muon       ? "with Muon's momentum and Adam's moments"
                                               : "with Adam's moments",
                         TotalBytes(manifest), manifest.plan_hash);
  for (const WrittenFile& file : manifest.files) {
    out << absl::StrFormat("  %s  %d bytes, %d slices, crc32c %08x\n", file.name, file.bytes, file.slices.size(),
                           file.crc32c);
  }
  for (const AttachedFile& file : manifest.attachments) {
    out << absl::StrFormat("  %s  %d bytes, crc32c %08x\n", file.name, file.bytes, file.crc32c);
  }
  if (parameters) PrintParameters(manifest, out);
}

absl::Status PrintRun(const std::string& run_directory, bool parameters, std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  const absl::StatusOr<int64_t> latest = ReadCheckpointPointer(run_directory, CheckpointPointer::kLatest);
  const absl::StatusOr<int64_t> best = ReadCheckpointPointer(run_directory, CheckpointPointer::kBest);
  const absl::StatusOr<CheckpointReader> newest = OpenLatest(run_directory);
  if (entries.empty()) out << "no checkpoints in " << CheckpointsDirectory(run_directory) << "\n";
  if (!entries.empty()) {
    out << absl::StrFormat("%-14s %10s %8s %10s %14s %6s  %-19s\n", "checkpoint", "update", "epochs", "valid nll",
                           "bytes", "files", "written");
  }
  for (const CheckpointEntry& entry : entries) {
    const absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(entry.directory);
    if (absl::IsNotFound(reader.status())) continue;  // by a run in progress, since it was listed
    const std::string marks = absl::StrCat(latest.ok() && *latest == entry.step ? "  latest" : "",
                                           BestMark(newest.ok() ? newest->manifest().progress : TrainingProgress(),
                                                    entry.step, best.ok() && *best == entry.step));
    if (!reader.ok()) {
      out << absl::StrFormat("%-14s %s: %s%s\n", BaseName(entry.directory), WhatIsWrong(reader.status()),
                             std::string(reader.status().message()), marks);
      continue;
    }
    const CheckpointManifest& manifest = reader->manifest();
    out << absl::StrFormat("%-14s %10d %8.2f %10s %14d %6d  %-19s%s\n", BaseName(entry.directory),
                           manifest.progress.update, manifest.progress.epochs_done,
                           Nll(manifest.progress.validation_nll), TotalBytes(manifest),
                           manifest.files.size() + manifest.attachments.size() + 1, Time(manifest.time), marks);
  }
  if (!parameters) return absl::OkStatus();
  if (newest.ok()) PrintParameters(newest->manifest(), out);
  return newest.status();
}

absl::Status VerifyBytes(CheckpointReader& reader) {
  int64_t bytes = 0;
  for (const WrittenFile& file : reader.manifest().files) bytes += 2 * file.bytes;
  WorkProgress progress(absl::StrCat("verifying ", reader.directory()), "bytes", bytes);
  return reader.Verify([&](int64_t done) { progress.Advance(done); });
}

absl::Status VerifyOne(const std::string& directory, std::ostream& out) {
  absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(directory);
  absl::Status status = reader.ok() ? VerifyBytes(*reader) : reader.status();
  if (!status.ok()) {
    out << absl::StrFormat("%-8s", WhatIsWrong(status)) << " " << directory << ": " << std::string(status.message())
        << "\n";
    return status;
  }
  out << absl::StrFormat("ok       %s: step %d, %d bytes, every slice of %d parameters\n", directory,
                         reader->manifest().progress.step, TotalBytes(reader->manifest()),
                         reader->manifest().parameters.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status PrintCheckpoints(const std::string& run_or_directory, bool parameters, std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const std::string run, RunOf(run_or_directory));
  if (!run.empty()) return PrintRun(run, parameters, out);
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(run_or_directory));
  PrintOne(reader, parameters, out);
  return absl::OkStatus();
}

absl::Status VerifyCheckpoints(const std::string& run_or_directory, std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const std::string run, RunOf(run_or_directory));
  if (run.empty()) return VerifyOne(run_or_directory, out);
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run));
  if (entries.empty()) return NotFoundError("no checkpoints in ", CheckpointsDirectory(run));
  int damaged = 0, removed = 0;
  absl::Status unreadable;
  for (const CheckpointEntry& entry : entries) {
    const absl::Status status = VerifyOne(entry.directory, out);
    damaged += absl::IsDataLoss(status) ? 1 : 0;
    removed += absl::IsNotFound(status) ? 1 : 0;
    if (!IsDamage(status)) unreadable.Update(status);
  }
  if (removed == static_cast<int>(entries.size())) return VerifyCheckpoints(run_or_directory, out);  // its newer ones
  if (damaged == 0) return unreadable;
  return DataLossError(damaged, " of ", entries.size(), " checkpoints are damaged");
}

}  // namespace hadal
