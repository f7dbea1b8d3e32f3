#include "runtime/comm/collectives.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// One tag per purpose. Messages with one tag between two ranks are in the order of the calls, which is the same on all
// ranks.
constexpr char kShared[] = "hadal/shared";  // the name of a status payload
constexpr int kVoteTag = Communicator::kFirstCollectiveTag;
constexpr int kLengthTag = Communicator::kFirstCollectiveTag + 1;
constexpr int kBytesTag = Communicator::kFirstCollectiveTag + 2;

// Parses gathered bytes: one list per rank, ranks ascending.
absl::StatusOr<std::vector<std::string>> ParseEntries(std::string_view entries, int count, std::string_view what) {
  std::vector<std::string> result(count);
  int arrived = 0;
  while (arrived < count && TakeList(entries, result[arrived])) ++arrived;
  if (arrived < count || !entries.empty()) {
    return InternalError("gathering ", std::string(what), ": ", arrived, " of ", count, " ranks' entries arrived",
                         entries.empty() ? "" : ", followed by extra bytes",
                         "; do all ranks call the same collectives?");
  }
  return result;
}

// The status's code as a byte, then the message of an error, or `value`.
std::string WithCode(const absl::Status& status, const std::string& value) {
  const char code = static_cast<char>(status.raw_code());
  return absl::StrCat(absl::string_view(&code, 1), status.ok() ? value : status.message());
}

}  // namespace

absl::Status SendBytes(Communicator& communicator, std::string_view data, int peer, absl::Duration timeout,
                       std::string_view what) {
  const uint64_t length = data.size();
  HADAL_ASSIGN_OR_RETURN(CommRequest sent, communicator.Send(&length, sizeof(length), peer, kLengthTag));
  HADAL_RETURN_IF_ERROR(communicator.Wait(sent, absl::Now() + timeout, what));
  HADAL_ASSIGN_OR_RETURN(sent, communicator.Send(data.data(), data.size(), peer, kBytesTag));
  return communicator.Wait(sent, absl::Now() + timeout, what);
}

absl::Status ReceiveBytes(Communicator& communicator, std::string& data, int peer, absl::Duration timeout,
                          std::string_view what) {
  uint64_t length = 0;
  HADAL_ASSIGN_OR_RETURN(CommRequest received, communicator.Receive(&length, sizeof(length), peer, kLengthTag));
  HADAL_RETURN_IF_ERROR(communicator.Wait(received, absl::Now() + timeout, what));
  const size_t before = data.size();
  data.resize(before + length);
  HADAL_ASSIGN_OR_RETURN(received, communicator.Receive(data.data() + before, length, peer, kBytesTag));
  return communicator.Wait(received, absl::Now() + timeout, what);
}

absl::Status AsCommonError(absl::Status error) {
  if (!error.ok()) error.SetPayload(kShared, absl::Cord());
  return error;
}

bool IsCommonError(const absl::Status& error) { return error.GetPayload(kShared).has_value(); }

absl::Status Collectives::Barrier(std::string_view what) { return AnyRank(false, what).status(); }

// Dissemination (Hensgen, Finkel and Manber, 1988): in round k rank r sends to rank r + 2^k all that it has received so
// far. After ⌈log2 P⌉ rounds every rank has received from every rank.
absl::StatusOr<bool> Collectives::AnyRank(bool value, std::string_view what) {
  const int rank = communicator_.rank();
  const int size = communicator_.size();
  uint8_t any = value ? 1 : 0;
  for (int distance = 1; distance < size; distance *= 2) {
    uint8_t heard = 0;
    HADAL_ASSIGN_OR_RETURN(CommRequest received,
                           communicator_.Receive(&heard, 1, (rank - distance + size) % size, kVoteTag));
    HADAL_ASSIGN_OR_RETURN(CommRequest sent, communicator_.Send(&any, 1, (rank + distance) % size, kVoteTag));
    HADAL_RETURN_IF_ERROR(communicator_.Wait(received, absl::Now() + timeout_, what));
    HADAL_RETURN_IF_ERROR(communicator_.Wait(sent, absl::Now() + timeout_, what));
    any |= heard;
  }
  return any != 0;
}

// Binomial tree over the ranks counted from the root: the parent of r is r without its lowest set bit.
absl::Status Collectives::Broadcast(std::string& data, int root, std::string_view what) {
  const int size = communicator_.size();
  HADAL_CHECK_GE(root, 0);
  HADAL_CHECK_LT(root, size);
  const int from_root = (communicator_.rank() - root + size) % size;
  int reach = 1;  // children of this rank are nearer than this
  while (reach < size && (from_root & reach) == 0) reach *= 2;
  if (from_root != 0) {
    data.clear();
    const int parent = (from_root - reach + root) % size;
    HADAL_RETURN_IF_ERROR(ReceiveBytes(communicator_, data, parent, timeout_, what));
  }
  // The farthest child first: it has the largest subtree to serve.
  for (int distance = reach / 2; distance >= 1; distance /= 2) {
    if (from_root + distance >= size) continue;
    const int child = (from_root + distance + root) % size;
    HADAL_RETURN_IF_ERROR(SendBytes(communicator_, data, child, timeout_, what));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Collectives::BroadcastResult(const absl::StatusOr<std::string>& result,
                                                         std::string_view what) {
  std::string bytes = WithCode(result.status(), result.ok() ? *result : "");
  HADAL_RETURN_IF_ERROR(Broadcast(bytes, /*root=*/0, what));
  HADAL_CHECK(!bytes.empty());
  const auto code = static_cast<absl::StatusCode>(bytes[0]);
  bytes.erase(0, 1);
  if (code == absl::StatusCode::kOk) return bytes;
  return AsCommonError(absl::Status(code, bytes));
}

// The same tree with root 0, upwards. A subtree is a range of ranks, so appending children in ascending order keeps the
// rank order.
absl::StatusOr<std::vector<std::string>> Collectives::AllGather(std::string_view data, std::string_view what) {
  const int rank = communicator_.rank();
  const int size = communicator_.size();
  std::string entries;
  AppendList(data, entries);
  for (int distance = 1; distance < size; distance *= 2) {
    if ((rank & distance) != 0) {
      HADAL_RETURN_IF_ERROR(SendBytes(communicator_, entries, rank - distance, timeout_, what));
      break;
    }
    if (rank + distance < size) {
      HADAL_RETURN_IF_ERROR(ReceiveBytes(communicator_, entries, rank + distance, timeout_, what));
    }
  }
  HADAL_RETURN_IF_ERROR(Broadcast(entries, /*root=*/0, what));
  return ParseEntries(entries, size, what);
}

absl::StatusOr<std::vector<std::vector<double>>> Collectives::AllGather(std::span<const double> values,
                                                                        std::string_view what) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, AllGather(AsBytes(values), what));
  std::vector<std::vector<double>> result;
  result.reserve(gathered.size());
  for (std::string_view entry : gathered) {
    HADAL_CHECK_EQ(entry.size() % sizeof(double), 0u);
    std::vector<double>& of_rank = result.emplace_back(entry.size() / sizeof(double));
    HADAL_CHECK(TakeValues(entry, std::span(of_rank)));
  }
  return result;
}

absl::Status Collectives::AllOk(const absl::Status& status, std::string_view what) {
  const absl::StatusOr<bool> any_failed = AnyRank(!status.ok(), what);
  // If `status` is an error of the transport, the vote fails as well, and the first error is more specific.
  if (!any_failed.ok()) return status.ok() ? any_failed.status() : status;
  if (!*any_failed) return absl::OkStatus();
  const std::string mine = WithCode(status, "");
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllGather(mine, what));
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    HADAL_CHECK(!all[rank].empty());
    const auto rank_code = static_cast<absl::StatusCode>(all[rank][0]);
    if (rank_code == absl::StatusCode::kOk) continue;
    const bool alike = all[rank].size() == 1 || std::count(all.begin(), all.end(), all[rank]) == std::ssize(all);
    return AsCommonError(
        absl::Status(rank_code, absl::StrCat(alike ? "" : absl::StrCat("rank ", rank, ": "), all[rank].substr(1))));
  }
  return InternalError("a rank voted that it had failed and then reported success");
}

}  // namespace hadal
