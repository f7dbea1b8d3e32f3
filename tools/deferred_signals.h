// Defers TERM, INT and HUP while something half written or a child exists: what is half written is removed and the
// child ends, then the signal takes its effect on this process. Signals that are ignored (nohup) stay ignored.
// Threads: those that the object's thread starts meanwhile defer them, too; a thread that was there before does not.
#pragma once

#include <sys/types.h>

#include <csignal>

#include "absl/status/statusor.h"

namespace hadal {

class DeferredSignals {
 public:
  DeferredSignals();
  // A signal that has arrived takes its effect now, if this is the outermost object. So declare it before what removes
  // the half-written files.
  ~DeferredSignals();
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;

  // Waits for a child's end, passes on to it the signals that arrive meanwhile, and kills it at the second INT.
  // Returns what waitpid reports. Errors: Internal.
  absl::StatusOr<int> WaitFor(pid_t child) const;

  // In a child between vfork and exec: the deferred signals take their default effect.
  void EndInChild() const;

 private:
  sigset_t signals_;          // those that are deferred
  sigset_t before_;           // this thread's mask
  mutable int received_ = 0;  // by WaitFor
};

}  // namespace hadal
