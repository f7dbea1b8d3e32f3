// File and directory names of a run, the only place that defines them.
//
//   RUN/config.resolved.textproto                the resolved configuration
//   RUN/profile.textproto, machine.textproto     copies of --profile and --machine
//   RUN/metrics.jsonl, tb/                       metrics, for programs and for TensorBoard
//   RUN/metrics.jsonl.<attempt>, config.resolved.textproto.<attempt>   being written; then renamed to the name above
//   RUN/metrics.jsonl.replaced.<attempt>         a file of that name that hadal had not written, moved aside
//   RUN/incarnations.jsonl                       a line a start of an elastic job (launch/elastic_job.h)
//   RUN/logs/rank_00000.log                      one log per rank
//   RUN/trace/steps_90-92.json
//   RUN/depth_probe.safetensors                  initial outputs that the depth instruments compare with
//   RUN/report.txt, report.{html,json,md}        the summary of a run that ended; written by `hadal report`
//   RUN/cell.json                                facts about one run of `hadal compare`, which writes it
//   RUN/checkpoints/step_00001000/               a checkpoint: manifest.json, rank_00000.safetensors …, and the
//                                                vocabularies: vocabulary.<ext>, or source.vocabulary.<ext> and
//                                                target.vocabulary.<ext>
//   RUN/checkpoints/step_00001000.tmp.<attempt>/        being written; never read
//   RUN/checkpoints/step_00001000.tmp.removed[.<attempt>]/   being removed
//   RUN/checkpoints/step_00001000.replaced.<attempt>/   moved aside for a newer checkpoint of the same step
//   RUN/checkpoints/step_00001000.abandoned.<attempt>/  set aside by a run that continued from an earlier step
//   RUN/checkpoints/latest, best                 relative symbolic links to a checkpoint (text files where the file
//                                                system has no links)
//   RUN/checkpoints/latest.replaced.<attempt>/   a directory that was in the link's place: a copy that followed links
//   RUN/checkpoints/attempt                      the launch that owns the run directory (checkpoint/run_owner.h)
//   RUN/checkpoints/resume_request               the --resume request of this job (tools/train/resume.h)
// An <attempt> identifies one launch: three hexadecimal numbers separated by '-', the last with 8 digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "runtime/files.h"

namespace hadal {

// Names in the run directory.
inline constexpr char kResolvedConfigName[] = "config.resolved.textproto";
inline constexpr char kProfileName[] = "profile.textproto";
inline constexpr char kMachineName[] = "machine.textproto";
inline constexpr char kMetricsName[] = "metrics.jsonl";
inline constexpr char kIncarnationsName[] = "incarnations.jsonl";
inline constexpr char kTensorBoardName[] = "tb";
inline constexpr char kLogsName[] = "logs";
inline constexpr char kTracesName[] = "trace";
inline constexpr char kDepthProbeName[] = "depth_probe.safetensors";
inline constexpr char kReportStem[] = "report";
inline constexpr char kComparedCellName[] = "cell.json";
inline constexpr char kCheckpointsName[] = "checkpoints";

inline std::string RankLogName(int rank) { return absl::StrFormat("rank_%05d.log", rank); }
// Traces sort by their first step, which follows the prefix.
inline constexpr char kTracePrefix[] = "steps_";
inline std::string TraceName(int64_t first_step, int64_t last_step) {
  return absl::StrCat(kTracePrefix, first_step, "-", last_step, ".json");
}

// TensorBoard reads a directory's files in the order of their names.
inline std::string EventsName(int64_t unix_seconds, const std::string& host, const std::string& attempt) {
  return absl::StrFormat("events.out.tfevents.%010d.%s.%s", unix_seconds, host, attempt);
}

// RUN/checkpoints and the names in it.
inline std::string CheckpointsDirectory(const std::string& run_directory) {
  return JoinPath(run_directory, kCheckpointsName);
}
inline constexpr char kLatestName[] = "latest";
inline constexpr char kBestName[] = "best";
inline constexpr char kAttemptName[] = "attempt";
inline constexpr char kResumeRequestName[] = "resume_request";
// Behind the name of a checkpoint. An attempt's name follows the first three; behind the last it follows with a "." if
// the directory was unfinished or replaced, and not if it was a whole checkpoint.
inline constexpr char kTemporaryInfix[] = ".tmp.";
inline constexpr char kReplacedInfix[] = ".replaced.";
inline constexpr char kAbandonedInfix[] = ".abandoned.";
inline constexpr char kRemovedSuffix[] = ".tmp.removed";

// "step_00001000".  REQUIRES: step ≥ 0.
inline std::string CheckpointName(int64_t step) {
  HADAL_CHECK_GE(step, 0);
  return absl::StrFormat("step_%08d", step);
}
inline std::string CheckpointDirectory(const std::string& run_directory, int64_t step) {
  return JoinPath(CheckpointsDirectory(run_directory), CheckpointName(step));
}
// The step of a name made by CheckpointName; nullopt for any other name, also for a temporary directory's.
inline std::optional<int64_t> ParseCheckpointName(const std::string& name) {
  const size_t digits = name.find_first_of("0123456789");
  int64_t step = 0;
  if (digits == std::string::npos || !absl::SimpleAtoi(name.substr(digits), &step) || CheckpointName(step) != name) {
    return std::nullopt;
  }
  return step;
}

// Names in a checkpoint's directory.
inline constexpr char kManifestName[] = "manifest.json";
inline std::string RankFileName(int rank) { return absl::StrFormat("rank_%05d.safetensors", rank); }
// Names of the vocabularies' files, without the extension.
inline constexpr char kSharedVocabulary[] = "vocabulary";
inline constexpr char kSourceVocabulary[] = "source.vocabulary";
inline constexpr char kTargetVocabulary[] = "target.vocabulary";
inline constexpr char kTokenizer[] = "tokenizer";  // a tokenizer.json keeps its name

}  // namespace hadal
