// RUN/logs/rank_00012.log: what one rank has to say, kept beside the run: where it ran and how it was started, what
// people were told, what it waited for, its last words. Rank 0's also has the progress lines.
//
//   2026-11-22T02:44:00.123Z start: hadal 0.1.0, rank 1 of 4 (stage 1 of 2, replica 0 of 2) on n2, process 4711, 2
//   threads on CPUs 0-1 2026-11-22T02:44:00.123Z started in /home/me as: hadal train deep.textproto --run-dir deep
//   2026-11-22T02:44:00.123Z environment: NCCL_DEBUG=INFO SLURM_JOB_ID=17
//   2026-11-22T03:10:41.007Z watchdog [rank 1]: waiting for 5m0s: …
//   2026-11-22T03:15:41.019Z end: exit code 5: …
//
// Why: mpirun's output is one stream of all ranks, and is lost with the terminal; these files stay, a rank each.
// Lines are appended, each by one write, so that a crash loses none; a resumed run goes on in the same file.
#pragma once

#include <memory>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"

namespace hadal {

class RankLog {
 public:
  // Makes the directory where there is none.  Errors: those of files.
  static absl::StatusOr<std::unique_ptr<RankLog>> Open(const std::string& directory, int rank);

  // A line for each of the text's, with the time in front; empty ones are left out.  Threads: any.
  void Say(const std::string& text);
  // The first trouble that writing has had, once.
  absl::Status Flush();

 private:
  RankLog(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  std::mutex mutex_;
  const FileDescriptor file_;
  const std::string path_;
  absl::Status trouble_;
};

// A log as a stream: what ends with a newline is said.  Threads: one.
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

// Where a rank is, for its first line.
struct RankPlace {
  std::string version;
  int rank = 0, ranks = 1, threads = 1;
  int stage = 0, stages = 0, replica = 0, replicas = 0;  // no stages: the model was not cut yet
};

// The lines that a start says: the place, this process's host, number, CPUs and command line, and of its environment
// what changes how a job runs (`environment`: null-terminated, as environ). Values of other variables are nobody's
// business.
std::string StartLines(const RankPlace& place, const char* const* environment);

}  // namespace hadal
