// What a training run reports to its supervisor (launch/supervisor.h): lines in a file that the environment variable
// HADAL_SUPERVISOR_REPORT names:
//
//   start 40 /home/u/runs/first    rank 0 starts (step 0) or resumes in this run directory, after step 40
//   saved 60                       rank 0 has committed the checkpoint of step 60
//   copied 70                      a copy of step 70 is in the memory of the hosts; before `start 70 …`: rank 0
//                                  resumes from that copy
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

// Returns the lines of RUN/metrics.jsonl from its last start on, out of the last 64 MB of the file; "": none.
std::string MetricsOfLastStart(const std::string& run_directory);

// What is saved, over all starts of the job by one supervisor: checkpoints, and copies in memory, which may be lost
// with their hosts.
class FurthestStep {
 public:
  // `run_directory`: the run's until a start has reported another. Of a start that has reported nothing (its rank 0 is
  // on another host, or did not begin), RUN/checkpoints/latest and metrics.jsonl count.
  explicit FurthestStep(std::string run_directory);

  // Must be called at the end of each start of the job, with its report. Returns whether that start has saved or copied
  // a step beyond all earlier ones. Counts from the step at which the first start with a report resumed, so checkpoints
  // that --resume CHECKPOINT has set aside do not count.
  bool Advance(const JobReport& report);
  // Returns where the next start resumes: "step 60 of runs/first", "the beginning", or, if no checkpoint is known,
  // both; behind it the step of a later copy in memory.
  std::string Describe() const;

 private:
  std::string run_directory_;
  int64_t saved_, copied_ = -1;  // the newest checkpoint and copy; -1: none known
  int64_t step_;                 // the furthest that was ever saved or copied
  bool reported_ = false;
};

}  // namespace hadal
