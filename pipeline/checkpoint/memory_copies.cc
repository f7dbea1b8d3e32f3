#include "pipeline/checkpoint/memory_copies.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/run_owner.h"
#include "runtime/check.h"
#include "runtime/comm/message_tags.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr std::string_view kWhat = "copies in memory";
constexpr int64_t kMessageBytes = int64_t{256} << 20;

}  // namespace

MemoryCopies::MemoryCopies(const TrainOptions& options, const std::vector<std::string>& hosts, Communicator& world)
    : run_directory_(options.run_directory),
      world_(world),
      collectives_(world, absl::Seconds(options.pipeline.wait_timeout_seconds)) {
  std::map<std::string, size_t> numbers;
  for (int rank = 0; rank < world.size(); ++rank) {
    const size_t host = numbers.emplace(hosts.at(rank), numbers.size()).first->second;
    ranks_of_.resize(numbers.size());
    ranks_of_[host].push_back(rank);
    if (rank == world.rank()) host_ = host;
  }
  std::error_code error;
  // Absolute first: a path that does not exist yet stays relative.
  const auto run = std::filesystem::weakly_canonical(std::filesystem::absolute(run_directory_, error), error).string();
  const std::string identity = absl::StrCat(run, "\n", hosts[world.rank()]);
  place_ = JoinPath(options.checkpoint.memory_folder,
                    absl::StrFormat("hadal-%d-%08x", geteuid(), Crc32c(identity.data(), identity.size())));
}

absl::Status MemoryCopies::MakePlace() const {
  if (mkdir(place_.c_str(), 0700) != 0 && errno != EEXIST) return CreationError(errno, place_);
  struct stat info = {};
  if (lstat(place_.c_str(), &info) != 0) return ErrnoStatus(errno, "stat", place_);
  // Nobody else can replace it then: such folders are sticky.
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("%s is no directory with mode 700 of user %d, but user %d's, mode %o;"
                      " remove it, or set checkpoint.memory_folder",
                      place_, geteuid(), info.st_uid, info.st_mode));
}

std::vector<CheckpointEntry> MemoryCopies::Copies() const {
  if (attempt_.empty() || !MakePlace().ok()) return {};
  const std::vector<std::string> attempts =
      absl::StrSplit(ReadFile(AttemptPath(), kMaxManifestBytes).value_or(""), '\n');
  if (!std::ranges::count(attempts, attempt_)) return {};
  return ListCheckpoints(place_).value_or(std::vector<CheckpointEntry>());
}

void MemoryCopies::Announce(const std::string& attempt, int64_t step) const {
  const std::vector<CheckpointEntry> copies = leads() ? Copies() : std::vector<CheckpointEntry>();
  if (copies.empty()) return;
  for (const CheckpointEntry& copy : copies) {
    if (copy.step > step) RemoveTree(copy.directory).IgnoreError();
  }
  ReplaceFile(AttemptPath(), absl::StrCat(attempt_, "\n", attempt), attempt).IgnoreError();
}

absl::Status MemoryCopies::Claim(const std::string& attempt, int64_t step) {
  const bool counted = !Copies().empty();
  attempt_ = attempt;
  if (!leads()) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(MakePlace());
  HADAL_RETURN_IF_ERROR(MakeDirectories(CheckpointsDirectory(place_)));
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(place_));
  for (const CheckpointEntry& entry : entries) {
    if (!counted || entry.step > step) HADAL_RETURN_IF_ERROR(RemoveTree(entry.directory));
  }
  return WriteAttempt();
}

absl::Status MemoryCopies::WriteAttempt() const { return ReplaceFile(AttemptPath(), attempt_, attempt_); }

void MemoryCopies::Remove() {
  if (leads() && MakePlace().ok()) RemoveTree(place_).IgnoreError();
}

// ---- Saving ----

std::vector<std::string> MemoryCopies::GivingRoom(int64_t step) const {
  std::vector<std::string> directories;
  if (!MakePlace().ok()) return directories;
  for (const CheckpointEntry& copy : ListCheckpoints(place_).value_or(std::vector<CheckpointEntry>())) {
    if (copy.step < step) directories.push_back(copy.directory);  // another rank may have begun the copy of `step`
  }
  if (!directories.empty()) directories.pop_back();
  return directories;
}

absl::Status MemoryCopies::BeginExchange(int64_t step, const std::vector<std::string>& files) {
  std::vector<Move> moves;
  for (size_t host = 0; host < ranks_of_.size() && ranks_of_.size() > 1; ++host) {
    const std::vector<int>& next = ranks_of_[(host + 1) % ranks_of_.size()];
    for (size_t i = 0; i < ranks_of_[host].size(); ++i) {
      const int from = ranks_of_[host][i], to = next[i % next.size()];
      if (from != world_.rank() && to != world_.rank()) continue;
      const absl::StatusOr<WrittenFile> file = WrittenFile::Parse(files[from]);
      HADAL_CHECK(file.ok());
      moves.push_back({.name = file->name, .bytes = file->bytes, .from = from, .to = to});
    }
  }
  return Exchange(step, std::move(moves));
}

// Every rank passes the same moves in the same order; those of other ranks alone may be missing.
absl::Status MemoryCopies::Exchange(int64_t step, std::vector<Move> moves) {
  EndExchange();  // one that failed
  moves_ = std::move(moves);
  std::erase_if(moves_, [&](const Move& move) { return move.from != world_.rank() && move.to != world_.rank(); });
  absl::Status opened;
  for (Move& move : moves_) {
    if (move.to == world_.rank()) {
      move.received.reset(new (std::nothrow) char[move.bytes]);
      if (move.received == nullptr) opened = absl::ResourceExhaustedError("not enough memory to receive a copy");
    } else {
      absl::StatusOr<MappedFile> file = MappedFile::Open(JoinPath(Directory(step), move.name));
      opened.Update(file.status());
      if (file.ok()) move.sent = *std::move(file);
    }
  }
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(opened, kWhat));
  for (const Move& move : moves_) {
    for (int64_t at = 0; at < move.bytes; at += kMessageBytes) {
      const int64_t bytes = std::min(kMessageBytes, move.bytes - at);
      HADAL_ASSIGN_OR_RETURN(requests_.emplace_back(),
                             move.received != nullptr
                                 ? world_.Receive(move.received.get() + at, bytes, move.from, kMemoryCopyTag)
                                 : world_.Send(move.sent.bytes().data() + at, bytes, move.to, kMemoryCopyTag));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MemoryCopies::Busy() {
  while (!requests_.empty()) {
    HADAL_ASSIGN_OR_RETURN(const bool done, world_.Test(requests_.back()));
    if (!done) return true;
    requests_.pop_back();
  }
  return false;
}

absl::Status MemoryCopies::AwaitMessages() {
  for (bool busy = true; busy;) {
    HADAL_ASSIGN_OR_RETURN(busy, Busy());
    HADAL_ASSIGN_OR_RETURN(busy, collectives_.AnyRank(busy, kWhat));
  }
  return absl::OkStatus();
}

absl::Status MemoryCopies::Store(int64_t step) {
  for (const Move& move : moves_) {
    if (move.received == nullptr) continue;
    const std::string path = JoinPath(Directory(step), move.name);
    HADAL_RETURN_IF_ERROR(RemoveTree(path));  // a damaged one
    HADAL_RETURN_IF_ERROR(WriteNewFile(path, {move.received.get(), static_cast<size_t>(move.bytes)}));
  }
  return absl::OkStatus();
}

void MemoryCopies::EndExchange() {
  if (!requests_.empty()) world_.Withdraw();
  requests_.clear();
  moves_.clear();
}

// ---- Loading ----

absl::Status MemoryCopies::Fetch(int64_t before_step, std::string& directory) {
  std::vector<double> own = {-1};  // rank 0: the newest checkpoint's step; behind it a host's first rank: its copies'
  if (world_.rank() == 0) {
    attempt_ = ReadOwner(run_directory_).value_or(std::nullopt).value_or(RunOwner()).attempt;
    const auto saved = FindLatest(run_directory_, {.before_step = before_step, .need_moments = true});
    if (saved.ok()) own[0] = static_cast<double>(saved->checkpoint.step);
  }
  HADAL_RETURN_IF_ERROR(collectives_.Broadcast(attempt_, 0, kWhat));
  for (const CheckpointEntry& copy : Copies()) {
    const bool counts = leads() && PathExists(JoinPath(copy.directory, kManifestName));
    if (counts) own.push_back(static_cast<double>(copy.step));
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> of_ranks, collectives_.AllGather(own, kWhat));
  std::map<int64_t, int, std::greater<>> holders;  // by step, newest first
  for (int rank = 0; rank < world_.size(); ++rank) {
    for (const double step : of_ranks[rank]) holders[static_cast<int64_t>(step)] = rank;
  }
  for (const auto& [step, holder] : holders) {
    if (step >= before_step) continue;
    if (static_cast<double>(step) <= of_ranks[0][0]) break;
    HADAL_ASSIGN_OR_RETURN(const bool complete, FetchCopy(step, holder));
    if (complete) directory = Directory(step);
    if (complete) break;
  }
  return absl::OkStatus();
}

// Returns whether the copy whose manifest rank `holder` has is complete.
absl::StatusOr<bool> MemoryCopies::FetchCopy(int64_t step, int holder) {
  const std::string directory = Directory(step), manifest_path = JoinPath(directory, kManifestName);
  std::string text = holder == world_.rank() ? ReadFile(manifest_path, kMaxManifestBytes).value_or("") : "";
  HADAL_RETURN_IF_ERROR(collectives_.Broadcast(text, holder, kWhat));
  const absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::Parse(text);
  if (!manifest.ok() || manifest->progress.step != step) return false;
  absl::Status stored = MakePlace();
  if (stored.ok()) stored = MakeDirectories(directory);
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(stored, kWhat));
  std::vector<AttachedFile> files = manifest->attachments;
  for (const WrittenFile& file : manifest->files) files.push_back({file.name, file.bytes, file.crc32c});
  // A host's ranks share the work.
  const auto rank_for = [&](size_t host, size_t file) { return ranks_of_[host][file % ranks_of_[host].size()]; };
  std::string intact(files.size(), '\0');
  for (size_t f = 0; f < files.size(); ++f) {
    if (rank_for(host_, f) != world_.rank()) continue;
    const absl::StatusOr<MappedFile> file = MappedFile::Open(JoinPath(directory, files[f].name));
    if (!file.ok() || std::ssize(file->bytes()) != files[f].bytes) continue;
    intact[f] = Crc32c(file->bytes().data(), file->bytes().size()) == files[f].crc32c ? 1 : 0;
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> of_ranks, collectives_.AllGather(intact, kWhat));
  std::vector<Move> moves;
  for (size_t f = 0; f < files.size(); ++f) {
    for (size_t host = 0; host < ranks_of_.size(); ++host) {
      size_t ahead = 0;
      const auto from = [&] { return rank_for((host + ahead) % ranks_of_.size(), f); };
      while (ahead < ranks_of_.size() && of_ranks[from()][f] == 0) ++ahead;
      if (ahead == ranks_of_.size()) return false;  // no host has it
      if (ahead == 0) continue;
      moves.push_back({.name = files[f].name, .bytes = files[f].bytes, .from = from(), .to = rank_for(host, f)});
    }
  }
  HADAL_RETURN_IF_ERROR(Exchange(step, std::move(moves)));
  HADAL_RETURN_IF_ERROR(AwaitMessages());
  stored = Store(step);
  EndExchange();
  if (stored.ok() && leads()) stored = ReplaceFile(manifest_path, text, attempt_);  // this host's may be damaged
  HADAL_RETURN_IF_ERROR(collectives_.AllOk(stored, kWhat));
  return true;
}

}  // namespace hadal
