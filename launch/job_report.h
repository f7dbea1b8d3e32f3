// What a training run reports to its supervisor (launch/supervisor.h): lines in a file that the environment variable
// HADAL_SUPERVISOR_REPORT names:
//
//   start 40 /home/u/runs/first    rank 0 starts or resumes there, after step 40
//   saved 60                       rank 0 has committed the checkpoint of step 60
//   end 85                         a rank ends, with this exit code
//
// The supervisor creates the file for each start of the job, and reads it when the job has ended. mpirun and job
// scripts pass the variable on; a rank on another host has no such file, and reports nothing.
// Threads: any; a report's sink: as MetricsSink. Blocking: writes a line, without fsync.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "launch/supervisor_state.h"
#include "runtime/metrics_sink.h"

namespace hadal {

inline constexpr char kReportVariable[] = "HADAL_SUPERVISOR_REPORT";

// Returns a sink that reports the start and the checkpoints, for rank 0; without a supervisor it does nothing.
std::unique_ptr<MetricsSink> MakeJobReport();
// Reports the end of this rank.
void ReportEnd(int exit_code);

// The report of one start.
struct JobReport {
  std::string run_directory;  // of the last start line, as rank 0's absolute path; empty: none
  int64_t start = -1;         // steps done at the first start line
  int64_t saved = -1;         // the furthest step of the saves and start lines; -1: none
  // Since the last start line: a rank ended; with exit code 85; the least other code but 0, which is the cause: ranks
  // that miss a peer end with 5 or 6.
  bool ended = false, saved_at_end = false;
  int failure = 0;  // 0: none
};
// Ignores malformed and incomplete lines.
JobReport ParseJobReport(const std::string& text);

// The furthest step that is saved, over all starts of a supervision.
class FurthestStep {
 public:
  // `run_directory`: for jobs that report nothing; its checkpoints/latest counts.
  explicit FurthestStep(std::string run_directory);

  // Must be called at the end of each attempt. Returns whether it has saved a step beyond all earlier ones. The
  // furthest step begins at the step from which the first reporting attempt resumed, so checkpoints that --resume
  // CHECKPOINT has set aside do not count.
  bool Advance(const JobReport& report);
  // Returns "step 60 of runs/first" or "the beginning".
  std::string Describe() const;

 private:
  std::string run_directory_;
  int64_t step_;
  bool reported_ = false;
};

}  // namespace hadal
