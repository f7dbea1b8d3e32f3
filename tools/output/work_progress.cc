#include "tools/output/work_progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/output/human_units.h"
#include "tools/output/progress_line.h"

namespace hadal {

WorkProgress::WorkProgress(std::string what, std::string unit, int64_t total)
    : WorkProgress({.out = std::cerr, .style = DetectTerminal(STDERR_FILENO)}, std::move(what), std::move(unit),
                   total) {}

WorkProgress::WorkProgress(Output output, std::string what, std::string unit, int64_t total)
    : output_(std::move(output)), what_(std::move(what)), unit_(std::move(unit)), total_(total), thread_([this] {
        Tick();
      }) {}

WorkProgress::~WorkProgress() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WorkProgress::Tick() {
  const bool live = output_.style.live;
  double next_seconds = live ? output_.first_seconds : output_.plain_seconds;
  bool shown = false;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::duration<double>(next_seconds), [&] { return ended_; })) {
    const std::string line =
        WorkProgressLine(what_, unit_, done_.load(std::memory_order_relaxed), total_, watch_.Seconds());
    output_.out << (live ? absl::StrCat("\r\033[K", CutToWidth(line, output_.style.columns - 1)) : line + "\n")
                << std::flush;
    shown = true;
    next_seconds = live ? output_.live_seconds : output_.plain_seconds;
  }
  if (shown && live) output_.out << "\r\033[K" << std::flush;
}

std::string WorkProgressLine(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                             double seconds) {
  const auto count = [](int64_t units) {
    return units < 10'000 ? HumanCount(units) : HumanRate(static_cast<double>(units));
  };
  if (total == 0) {
    const std::string so_far = done > 0 ? absl::StrCat("  ", count(done), " ", unit) : "";
    return absl::StrCat(what, so_far, "  ", HumanDuration(seconds));
  }
  done = std::min(done, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const std::string eta = done > 0 ? absl::StrCat("  ETA ", HumanDuration(seconds * (1 / share - 1))) : "";
  return absl::StrFormat("%s  %2.0f%%  %s/%s %s%s", what, 100 * share, count(done), count(total), unit, eta);
}

}  // namespace hadal
