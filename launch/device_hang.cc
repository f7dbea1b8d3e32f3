#include "launch/device_hang.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "launch/exit_code.h"

namespace hadal {

void EndHung(const std::string& who, const std::string& what, std::function<void()> flush) {
  std::fprintf(stderr, "hadal %s: %s\n", who.c_str(), what.c_str());
  if (flush) {
    std::packaged_task<void()> task(std::move(flush));
    const std::future<void> flushed = task.get_future();
    try {
      std::thread(std::move(task)).detach();
      flushed.wait_for(std::chrono::seconds(kLongestFlushSeconds));
    } catch (const std::system_error&) {
      // No thread can be started: the message is on stderr.
    }
  }
  _exit(kExitHang);
}

}  // namespace hadal
