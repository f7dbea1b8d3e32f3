#include "launch/error_report.h"

#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"
#include "runtime/comm/collectives.h"
#include "runtime/text.h"

namespace hadal {

bool ReportError(const std::string& command, const absl::Status& error, const Communicator& communicator,
                 std::ostream& out) {
  const int rank = communicator.rank(), size = communicator.size(), code = ExitCodeOf(error);
  const bool common = size == 1 || (IsCommonError(error) && code != kExitHang && code != kExitPeerLost);
  if (common && (rank != 0 || error.message().empty())) return true;  // "": a child has printed why
  std::string ranks;
  if (size > 1) ranks = common ? absl::StrCat(" [all ", size, " ranks]") : absl::StrCat(" [rank ", rank, "]");
  // In one piece: ranks write to the same place.
  out << absl::StrCat("hadal ", command, ranks, ": ", PrintableMessage(std::string(error.message())), "\n")
      << std::flush;
  return common;
}

}  // namespace hadal
