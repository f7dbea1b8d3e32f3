// Ends the process when a device does not respond: a wait for it lasts longer than a timeout, or a call of its driver
// does not return.
//
//   {
//     const DeviceWatch::Wait wait(watch, "a copy to the host");
//     cudaStreamSynchronize(…)          if this lasts longer than the timeout: hung("… a copy to the host …")
//   }
//   watch.BeforeCall(); kernel<<<…>>>   if no Wait of this thread ends within twice the timeout: hung("… launched …")
//
// The waiting thread may be stuck in the driver, and any further call of CUDA or NCCL may block, too. So the watch has
// its own thread, which only looks at the clock. Waits for other ranks are no Waits: their
// timeouts are errors that name the rank (comm/communicator.h), and come before twice this timeout.
// Thread safety: any thread may wait and call BeforeCall; both concern the calling thread's own work. Cost: about 0.1
// us.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace hadal {

class DeviceWatch {
 public:
  struct Options {
    absl::Duration timeout = absl::InfiniteDuration();  // infinite: no watch
    // Called once, on the watch's thread, with what the device did not finish. Must end the process without using the
    // device.
    std::function<void(const std::string& what)> hung;
  };

  explicit DeviceWatch(Options options);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // A wait: from construction to destruction, the calling thread waits for the device or makes a call that may wait
  // for it.
  class [[nodiscard]] Wait {
   public:
    // `what` must be a literal.
    Wait(DeviceWatch& watch, const char* what);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    friend class DeviceWatch;
    DeviceWatch& watch_;
    const char* const what_;
    const double since_seconds_;
  };

  // Must be called before a driver call that normally returns at once (launch, enqueued copy, event). The calling
  // thread's next Wait must end within twice the timeout after its last BeforeCall.
  void BeforeCall();

 private:
  void Watch();
  // The time that the watch may sleep.  REQUIRES: mutex_ is held.
  absl::Duration UntilNextLook() const;
  // Returns what the device has not finished in time, or "".  REQUIRES: mutex_ is held.
  std::string Overdue() const;

  const Options options_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ending_ = false;                                                 // guarded by mutex_, as are all below
  std::vector<const Wait*> waits_;                                      // in progress, oldest first
  std::map<std::thread::id, std::optional<double>> last_call_seconds_;  // since the thread's last Wait
  std::thread thread_;                                                  // last: it uses the others
};

}  // namespace hadal
