#include "tools/train/resume_request.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr char kAuto[] = "auto";
constexpr int64_t kMaxNoteBytes = 65536;

// Identifies the job that started this process.
struct Job {
  std::string start, slurm_id;  // empty: none
  bool started_before = false;  // Slurm has restarted the job slurm_id

  static Job Of(const Environment& environment) {
    const auto value = [&](const char* name) -> std::string {
      const char* const text = environment(name);
      return text == nullptr ? "" : text;
    };
    int restarts = 0;
    return {.start = value("HADAL_JOB_START"),
            .slurm_id = value("SLURM_JOB_ID"),
            .started_before = absl::SimpleAtoi(value("SLURM_RESTART_COUNT"), &restarts) && restarts > 0};
  }
  bool named() const { return !start.empty() || !slurm_id.empty(); }
};

struct Note {
  std::string job_start, slurm_id, asked;
  int64_t step = 0;

  bool IsOf(const Job& job) const {
    return (!job_start.empty() && job_start == job.start) ||
           (job.started_before && !slurm_id.empty() && slurm_id == job.slurm_id);
  }
  std::string Text() const { return absl::StrCat(job_start, "\n", slurm_id, "\n", asked, "\n", step, "\n"); }
};

std::string NotePath(const std::string& run_directory) {
  return JoinPath(CheckpointsDirectory(run_directory), kResumeRequestName);
}

// Returns nullopt if the note does not exist or is malformed; the request then still applies.
std::optional<Note> ReadNote(const std::string& run_directory) {
  const absl::StatusOr<std::string> text = ReadFile(NotePath(run_directory), kMaxNoteBytes);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  constexpr size_t kLines = 5;  // the last one is empty
  Note note;
  if (lines.size() != kLines || !absl::SimpleAtoi(lines[3], &note.step)) return std::nullopt;
  note.job_start = lines[0];
  note.slurm_id = lines[1];
  note.asked = lines[2];
  return note;
}

}  // namespace

absl::StatusOr<std::string> ResumeOfThisAttempt(const std::string& run_directory, const std::string& asked,
                                                const Environment& environment) {
  const std::optional<Note> note = asked == kAuto ? std::nullopt : ReadNote(run_directory);
  if (!note || note->asked != asked || !note->IsOf(Job::Of(environment))) return asked;
  const absl::StatusOr<FoundCheckpoint> newest = FindLatest(run_directory, {.need_moments = true});
  if (absl::IsNotFound(newest.status())) return asked;
  HADAL_RETURN_IF_ERROR(newest.status());
  // Without a newer checkpoint of this run, the request still names where to continue.
  return newest->checkpoint.step > note->step ? kAuto : asked;
}

absl::Status NoteResume(const std::string& run_directory, const std::string& asked, int64_t step,
                        const Environment& environment) {
  const Job job = Job::Of(environment);
  if (asked == kAuto || !job.named()) return absl::OkStatus();
  const Note note{.job_start = job.start, .slurm_id = job.slurm_id, .asked = asked, .step = step};
  HADAL_RETURN_IF_ERROR(MakeDirectories(CheckpointsDirectory(run_directory)));
  return ReplaceFile(NotePath(run_directory), note.Text(), "new");
}

}  // namespace hadal
