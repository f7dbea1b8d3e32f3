// MemoryCopies keeps copies of the training state in the memory of the run's hosts: a job that loses a host resumes
// from them without a file system. A copy is a checkpoint whose files are spread over the hosts: each host holds those
// of its own ranks and of the host before it.
//
//   FOLDER/hadal-<user id>-<checksum of run directory and host>/checkpoints/   one for each host, mode 0700
//     attempt          the start of the job (run_owner.h) to whose history the copies belong; on a second line the next
//                      start, while it claims the run directory
//     step_00000010/   rank_R.safetensors of both hosts' ranks, vocabularies, manifest.json of the whole checkpoint
//
// Two copies are kept; the older one gives its memory to the next. They outlive the ranks. A copy counts if each of its
// files is intact, by size and CRC32C, on a host that is present, and if the hosts were part of the start that last
// owned the run directory: the copies of a host that was absent then are of another history.
// Errors: those of files and of Communicator::Wait; PermissionDenied: another user's directory, or a link, is in place.
// Threads: one per rank; Store may run on another. Blocking: all but Busy. Fetch and BeginExchange are collective.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"
#include "runtime/files.h"
#include "runtime/mapped_file.h"
#include "runtime/run_directory.h"

namespace hadal {

class MemoryCopies {
 public:
  // `hosts`: [ranks], their names. `world` must outlive the object.
  MemoryCopies(const TrainOptions& options, const std::vector<std::string>& hosts, Communicator& world);
  ~MemoryCopies() { EndExchange(); }

  // Finds the newest copy that is newer than the run's checkpoints before `before_step`, and sends each host the files
  // that it lacks, so that any layout can load it: every host then holds the whole state, at first twice what it
  // lacked. `directory`: of the copy, on this host; unchanged if there is none.
  absl::Status Fetch(int64_t before_step, std::string& directory);
  // Before the run directory's claim, on all ranks: copies that count, up to `step`, from which `attempt` continues,
  // still do if it then ends before Claim; later ones are removed.
  void Announce(const std::string& attempt, int64_t step) const;
  // Makes this host's directory belong to `attempt`, which continues from `step`. Keeps copies up to that step if Fetch
  // has found that they count.
  absl::Status Claim(const std::string& attempt, int64_t step);
  void Remove();  // all copies of this host

  bool leads() const { return ranks_of_[host_][0] == world_.rank(); }  // whether this is its host's first rank
  std::string Directory(int64_t step) const { return CheckpointDirectory(place_, step); }
  // After Claim: the directories of this host's copies before `step` but for the newest of them, which stays.
  std::vector<std::string> GivingRoom(int64_t step) const;
  // Begins to send this rank's file to the next host and to receive those for this rank. `files`: every rank's
  // WrittenFile as text.
  absl::Status BeginExchange(int64_t step, const std::vector<std::string>& files);
  absl::StatusOr<bool> Busy();        // whether messages are under way
  absl::Status AwaitMessages();       // on all ranks. Blocking; collective
  absl::Status Store(int64_t step);   // writes the received files; after the exchange
  absl::Status WriteAttempt() const;  // by a host's first rank before a copy is complete: RemoveIPC may have removed it
  void EndExchange();                 // frees its memory, also in its midst

 private:
  struct Move {
    std::string name;  // of a file
    int64_t bytes = 0;
    int from = 0, to = 0;  // ranks
    MappedFile sent;
    std::unique_ptr<char[]> received;
  };
  absl::Status Exchange(int64_t step, std::vector<Move> moves);
  absl::Status MakePlace() const;
  std::string AttemptPath() const { return JoinPath(CheckpointsDirectory(place_), kAttemptName); }
  std::vector<CheckpointEntry> Copies() const;  // on this host, ascending; those of attempt_
  absl::StatusOr<bool> FetchCopy(int64_t step, int holder);

  const std::string run_directory_;
  Communicator& world_;
  Collectives collectives_;
  std::vector<std::vector<int>> ranks_of_;  // [hosts], in the order of their first ranks
  size_t host_ = 0;                         // this rank's
  std::string place_;                       // this host's directory
  std::string attempt_;                     // whose copies count: the run's last owner's; from Claim on this one's
  std::vector<Move> moves_;                 // to and from this rank
  std::vector<CommRequest> requests_;
};

}  // namespace hadal
