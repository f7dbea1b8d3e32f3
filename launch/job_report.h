// What a training run reports to its supervisor (launch/supervisor.h): lines in a file that the environment variable
// HADAL_SUPERVISOR_REPORT names:
//
//   start 40 /home/u/runs/first    rank 0 starts (step 0) or resumes in this run directory, after step 40
//   saved 60                       rank 0 has committed the checkpoint of step 60
//   copied 70                      a copy of step 70 is in its hosts' memory; before `start 70`: rank 0 resumes from it
//   end 85                         a rank ends with exit code 85
//
// The supervisor creates the file for each start of the job, and reads it when the job has ended. mpirun and job
// scripts pass the variable on; a rank on another host has no such file, and reports nothing.
// Threads: any may call the functions; for the sink see MetricsSink. Blocking: writes a line, without fsync; a line
// that cannot be written is lost silently.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "launch/supervisor_state.h"
#include "runtime/metrics_sink.h"

namespace hadal {

inline constexpr char kReportVariable[] = "HADAL_SUPERVISOR_REPORT";

// Returns a sink for rank 0 that reports the start and the checkpoints; without a supervisor the sink does nothing.
std::unique_ptr<MetricsSink> MakeJobReport();
// Reports the end of this rank.
void ReportEnd(int exit_code);

// The report of one start.
struct JobReport {
  std::string run_directory;  // of the last start line, as rank 0's absolute path; empty: none
  int64_t start = -1;         // the step of the first start line; -1: none
  int64_t saved = -1;         // the largest step of the saved lines, and of the start lines not from a copy; -1: none
  int64_t copied = -1;        // the largest step of the copied lines; -1: none
  // The following fields consider only the end lines after the last start line.
  bool ended = false;         // there is an end line
  bool saved_at_end = false;  // an end line has exit code 85
  // The least exit code from 1 to 84; 0: none. If one rank fails with 1 … 4, the ranks that wait for it end with
  // 5 or 6, so the least code is that of the cause.
  int failure = 0;
};
// Parses the contents of the file. Ignores malformed and incomplete lines.
JobReport ParseJobReport(const std::string& text);

// Returns RUN/metrics.jsonl from its last start on, out of the last 64 MB; "": there is none.
std::string MetricsOfLastStart(const std::string& run_directory);

// The furthest step that is saved in a checkpoint or copied to memory, over all starts of the job by one supervisor.
class FurthestStep {
 public:
  // `run_directory`: as long as no start has reported another. Of a start without a report (rank 0 is on another host,
  // or did not begin) its checkpoints/latest and metrics.jsonl count.
  // `asked`: the command names a checkpoint to resume from. Copies count only behind a later checkpoint then.
  FurthestStep(std::string run_directory, bool asked);

  // Must be called at the end of each start of the job, with its report. Returns whether that start has saved a step
  // beyond all earlier ones. Counts from the step at which the first start with a report resumed, so checkpoints that
  // --resume CHECKPOINT has set aside do not count.
  bool Advance(const JobReport& report);
  // Returns where the next start resumes, such as "step 60 of runs/first (step 70 if …)" or "the beginning".
  std::string Describe() const;

 private:
  std::string run_directory_;
  const bool asked_;
  int64_t saved_, copied_ = -1;  // the newest checkpoint and copy; -1: none known
  int64_t step_;
  int64_t first_ = -1;  // where the first start with a report resumed
};

}  // namespace hadal
