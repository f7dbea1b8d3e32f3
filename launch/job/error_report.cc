#include "launch/job/error_report.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "launch/job/exit_code.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/message_tags.h"
#include "runtime/crc32c.h"
#include "runtime/deadline.h"

namespace hadal {
namespace {

constexpr const char* kComparing = "comparing the ranks' errors";

// What a rank shows of its error.
struct Shown {
  uint32_t identity;   // equal for the same error, be it told with the rank that had it first
  uint32_t passed_on;  // 1: AllOk's "rank 3: …"
};

Shown Show(const absl::Status& error) {
  absl::string_view message = error.message();
  const size_t digits = absl::StartsWith(message, "rank ") ? message.find_first_not_of("0123456789", 5) : 0;
  const bool passed_on =
      digits > 5 && digits != absl::string_view::npos && absl::StartsWith(message.substr(digits), ": ");
  if (passed_on) message.remove_prefix(digits + 2);
  return {Crc32c(message.data(), message.size()), passed_on ? 1u : 0u};
}

// Rank 0's side: collects what the others show, then answers them.
class Comparison {
 public:
  Comparison(const Shown& mine, Communicator& communicator, const Deadline& deadline)
      : communicator_(communicator), mine_(mine), theirs_(communicator.size() - 1) {
    for (int p = 0; p < peers(); ++p) {
      const absl::StatusOr<CommRequest> request =
          communicator.Receive(&theirs_[p], sizeof(Shown), p + 1, kErrorReportTag);
      if (!request.ok()) return;
      requests_.push_back(*request);
    }
    while (!AllHaveShown() && !deadline.Passed()) absl::SleepFor(absl::Milliseconds(1));
  }

  // The ranks that have rank 0's error, and those of them that found it themselves.
  int32_t same() const {
    return 1 + Count([&](const Shown& s) { return s.identity == mine_.identity; });
  }
  int found() const {
    const auto has_found = [&](const Shown& s) { return s.identity == mine_.identity && s.passed_on == 0; };
    return (has_found(mine_) ? 1 : 0) + Count(has_found);
  }

  // Tells each that has shown its error same(), or 0 where it has another.
  void Answer() {
    const int32_t same_error = same(), another = 0;
    std::vector<CommRequest> told;
    for (size_t p = 0; p < requests_.size(); ++p) {
      if (requests_[p].active()) continue;
      const int32_t& answer = theirs_[p].identity == mine_.identity ? same_error : another;
      const absl::StatusOr<CommRequest> request =
          communicator_.Send(&answer, sizeof(answer), static_cast<int>(p) + 1, kErrorReportTag);
      if (request.ok()) told.push_back(*request);
    }
    const Deadline deadline(kErrorPatience);
    for (CommRequest& request : told) {
      if (!communicator_.Wait(request, absl::Now() + deadline.Left(), kComparing).ok()) return;
    }
    for (CommRequest& request : requests_) {  // takes back what nobody has sent
      if (request.active() && !communicator_.Wait(request, absl::InfinitePast(), kComparing).ok()) return;
    }
  }

 private:
  int peers() const { return static_cast<int>(theirs_.size()); }

  // Also where the transport has failed: nobody will show anything any more.
  bool AllHaveShown() {
    bool all = true;
    for (CommRequest& request : requests_) {
      if (!request.active()) continue;
      const absl::StatusOr<bool> done = communicator_.Test(request);
      if (!done.ok()) return true;
      all = all && *done;
    }
    return all;
  }

  template <typename Predicate>
  int32_t Count(const Predicate& predicate) const {
    int32_t count = 0;
    for (size_t p = 0; p < requests_.size(); ++p) count += !requests_[p].active() && predicate(theirs_[p]) ? 1 : 0;
    return count;
  }

  Communicator& communicator_;
  Shown mine_;
  std::vector<Shown> theirs_;          // [peers]
  std::vector<CommRequest> requests_;  // active: that rank has shown nothing yet
};

// The number of ranks with this rank's error if rank 0 has it; 0 if it has another, or says nothing.
int AskRankZero(const Shown& mine, Communicator& communicator, const Deadline& deadline) {
  int32_t same = 0;
  absl::StatusOr<CommRequest> answer = communicator.Receive(&same, sizeof(same), 0, kErrorReportTag);
  if (!answer.ok()) return 0;
  absl::StatusOr<CommRequest> shown = communicator.Send(&mine, sizeof(mine), 0, kErrorReportTag);
  if (!shown.ok()) return 0;
  if (!communicator.Wait(*answer, absl::Now() + deadline.Left(), kComparing).ok()) return 0;
  return communicator.Wait(*shown, absl::Now() + deadline.Left(), kComparing).ok() ? same : 0;
}

// In one piece: ranks write to the same place.
void Print(const std::string& command, const std::string& who, const absl::Status& error, std::ostream& out) {
  out << absl::StrCat("hadal ", command, who, ": ", error.message(), "\n") << std::flush;
}

}  // namespace

absl::Duration PatienceWith(const absl::Status& error, bool at_work) {
  return at_work && !IsShared(error) ? kOwnErrorPatience : kErrorPatience;
}

bool ReportError(const std::string& command, const absl::Status& error, Communicator& communicator, std::ostream& out,
                 absl::Duration patience) {
  const int rank = communicator.rank(), size = communicator.size(), code = ExitCodeOf(error);
  const std::string by_itself = size > 1 ? absl::StrCat(" [rank ", rank, "]") : "";
  if (size == 1 || code == kExitHang || code == kExitPeerLost) {
    Print(command, by_itself, error, out);
    return size == 1;
  }
  const Shown mine = Show(error);
  if (rank > 0) {
    const int same = AskRankZero(mine, communicator, Deadline(2 * patience));
    if (same == 0) Print(command, by_itself, error, out);
    return same == size;
  }
  Comparison comparison(mine, communicator, Deadline(patience));
  const int found = comparison.found();
  std::string who = by_itself;
  if (found == size) {
    who = absl::StrCat(" [all ", size, " ranks]");
  } else if (mine.passed_on != 0) {
    who = "";  // the message names the rank
  } else if (found > 1) {
    who = absl::StrCat(" [rank 0 and ", found - 1, " more]");
  }
  Print(command, who, error, out);
  comparison.Answer();  // after the message: who hears of it may abort the job
  return comparison.same() == size;
}

}  // namespace hadal
