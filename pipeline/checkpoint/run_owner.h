// The owner of a run directory: the one attempt (start of the run's job) that may write to it. Works on shared file
// systems, without locks.
//
// RUN/checkpoints/attempt is the owner's record, in six lines:
//   6925c0a1-1267-8f3e11d0                      attempt, the name of the attempt
//   n2                                          host
//   3f0c…-9d1e pid:[4026531836]                 place: the host's boot id and the process namespace, within which a
//                                               pid denotes one process
//   4711 8812345                                pid of rank 0, and its start in clock ticks since boot
//   2026-11-25T09:42:21Z                        time of the claim
//   0000000017                                  heartbeats so far, one every 5 seconds; at the attempt's end "ended"
// An attempt claims the directory by replacing the file, so the last claim counts.
//
//   state of the last owner                     what another attempt does
//   none, or it has ended                       starts
//   its process is gone from this place         starts
//   its process is in this place, even stopped  ends with an error at once
//   another place, the heartbeats go on         ends with an error after the next heartbeat
//   another place, no heartbeat for 20 seconds  starts: the owner is dead, stopped or cut off
// --take-over starts in every case. Heartbeats are compared with one another, never with a clock of another host.
//
// An attempt that has lost its directory may continue at any moment, for example after SIGCONT. Every attempt checks
// its claim before it writes the results of a step and before each commit, and ends if it has lost the directory. What
// it writes after an earlier check has no effect on the run: its metrics file is no longer the run's
// (tools/output/metrics_jsonl.h), and every other file is first written under a name that ends in the attempt's name;
// then the attempt checks its claim and renames the file. A new owner removes all such names after its claim
// (RemoveLeftovers), so that the rename fails if the claim came between the check and the rename.
// Limitation: two attempts that start within the same moment may both claim. The later claim counts, and the earlier
// attempt ends at its next check.
// Thread safety: any thread may call the functions. Blocking: file input and output.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/files.h"

namespace hadal {

// Returns a unique name for an attempt at a run, from time, process and random bits. Rank 0 calls it and broadcasts it.
std::string NewCheckpointAttempt();

struct RunOwner {
  std::string attempt, host, pid_namespace;  // pid_namespace: the record's third line
  int64_t pid = 0, start_ticks = 0;          // of rank 0
  std::string since;
  std::string heartbeats;  // their count; "ended": the attempt has ended

  // "attempt 6925c0a1-1267-8f3e11d0, process 4711 on n2, since 2026-11-25T09:42:21Z".
  std::string Describe() const;
};
// Returns the last owner; nullopt if nobody has claimed the directory. Errors: those of files, except NotFound.
absl::StatusOr<std::optional<RunOwner>> ReadOwner(const std::string& run_directory);

// The usual `silence` of FindPredecessor.
inline constexpr absl::Duration kOwnerSilence = absl::Seconds(20);
// Rank 0, at the start of an attempt: checks that no other attempt is running. Returns the name of the last owner's
// attempt, or "" if nobody has claimed the directory. `silence`: how long to wait for a heartbeat of an owner in
// another place; before the wait calls `tell` with a message. Errors: Aborted, naming owner and remedies; ReadOwner's.
absl::StatusOr<std::string> FindPredecessor(const std::string& run_directory, absl::Duration silence,
                                            const std::function<void(const std::string&)>& tell);

// Any rank: checks that `attempt` still owns the directory.
// Errors: Aborted, naming the owner, if another attempt has claimed it; Internal if the record is gone; file
// errors, which say nothing about the owner.
absl::Status CheckOwner(const std::string& run_directory, const std::string& attempt);

// For an error that `attempt` met after its claim: returns CheckOwner's error if another attempt has claimed the
// directory since, else `error`. A new owner removes and renames files, which may be the cause of `error`.
absl::Status CauseOf(const absl::Status& error, const std::string& run_directory, const std::string& attempt);

// Rank 0's ownership, from Claim until it is destroyed or lost.
class RunOwnership {
 public:
  struct Options {
    std::string run_directory;
    std::string attempt;
    // The owner that the attempt may replace (FindPredecessor's result); if another running attempt owns the directory,
    // Claim returns Aborted. Not set: replaces any owner.
    std::optional<std::string> predecessor;
    absl::Duration heartbeat = absl::Seconds(5);
  };
  // Creates RUN/checkpoints, writes the record, and starts the heartbeats.  Errors: Aborted; those of files.
  static absl::StatusOr<std::unique_ptr<RunOwnership>> Claim(const Options& options);
  // Ends the heartbeats and marks this attempt's record as ended. A later claim's record is another file and stays.
  ~RunOwnership();

  // As CheckOwner; Aborted also if the run directory, or the record, was removed.
  absl::Status Check() const;

 private:
  RunOwnership(const Options& options, FileDescriptor record, off_t heartbeats_at);
  void Beat();
  // Writes `heartbeats` to this attempt's own record. After another claim that file is no longer in the directory.
  void Write(std::string_view heartbeats);

  const Options options_;
  const FileDescriptor record_;
  const off_t heartbeats_at_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hadal
