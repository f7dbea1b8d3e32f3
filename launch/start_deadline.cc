#include "launch/start_deadline.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "launch/exit_code.h"

namespace hadal {

StartDeadline::StartDeadline(std::string who, absl::Duration patience) : who_(std::move(who)), patience_(patience) {
  try {
    thread_ = std::thread([this] { Watch(); });
  } catch (const std::system_error&) {
    // MPI needs threads, too, and will report the error.
  }
}

StartDeadline::~StartDeadline() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StartDeadline::Watch() {
  std::unique_lock lock(mutex_);
  if (end_.wait_for(lock, absl::ToChronoMilliseconds(patience_), [this] { return ended_; })) return;
  std::fprintf(stderr,
               "hadal [%s]: gave up after %s waiting for all ranks to start. One of them is stopped, hangs (in a file "
               "server, in a network's driver), or its host cannot be reached; `ps -o pid,stat,wchan:30,args -C hadal` "
               "on each host shows those with T (stopped) or D (waiting for a file or a device)\n",
               who_.c_str(), absl::FormatDuration(patience_).c_str());
  std::fflush(stderr);
  std::_Exit(kExitHang);
}

}  // namespace hadal
