// RankLog writes the log file of one rank, RUN/logs/rank_00012.log: host and command line, messages, reports of long
// waits, and the exit code. Rank 0's log also has the progress lines.
//
//   2026-11-22T02:44:00.123Z start: hadal 0.1.0, rank 1 of 4 (stage 1 of 2, replica 0 of 2) on n2, process 4711,
//       attempt 69212b90-1267-8f3e11d0, 2 threads on CPUs 0-1
//   2026-11-22T02:44:00.123Z started in /home/me as: hadal train deep.textproto --run-dir deep
//   2026-11-22T02:44:00.123Z environment: NCCL_DEBUG=INFO SLURM_JOB_ID=17
//   2026-11-22T03:10:41.007Z watchdog [rank 1]: waiting for 5m0s: …
//   2026-11-22T03:15:41.019Z end: exit code 5: …
// Why: mpirun merges the output of all ranks into one stream, which is lost with the terminal; these files remain, one
// per rank. Each line is appended by one write, so that a crash loses none; a resumed run appends to the same file.
#pragma once

#include <memory>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

class RankLog {
 public:
  // Creates the directory if it is missing.  Errors: those of files.
  static absl::StatusOr<std::unique_ptr<RankLog>> Open(const std::string& directory, int rank);

  // Appends each line of `text`, printable, with the time before it; skips empty lines.  Threads: any.
  void Say(const std::string& text);
  // Returns the first error of writing, once.
  absl::Status Flush();

 private:
  RankLog(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  std::mutex mutex_;
  const FileDescriptor file_;
  const std::string path_;
  absl::Status trouble_;
};

// A log as a stream; writes each line when its newline arrives.  Threads: one.
class RankLogStream final : private std::streambuf, public std::ostream {
 public:
  // `log` must outlive it.
  explicit RankLogStream(RankLog& log) : std::ostream(static_cast<std::streambuf*>(this)), log_(log) {}

 private:
  int overflow(int character) override;
  std::streamsize xsputn(const char* characters, std::streamsize count) override;
  void SayLines();

  RankLog& log_;
  std::string pending_;
};

// The position of a rank in the job, for the first line of its log.
struct RankIdentity {
  std::string version;
  int rank = 0, ranks = 1, threads = 1;
  int stage = 0, stages = 0, replica = 0, replicas = 0;  // stages = 0: the model has not been cut yet
  std::string attempt;                                   // empty: the run directory is not claimed yet
};

// The first lines of a start: the place; this process's host, number, CPUs and command line; and the environment
// variables of runtime/logged_environment.h (`environment`: null-terminated, as environ).
std::string StartLines(const RankIdentity& identity, const char* const* environment);

}  // namespace hadal
