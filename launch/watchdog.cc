#include "launch/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

// Needs no memory allocation.
constexpr char kCannotSay[] =
    "hadal: watchdog [rank %d]: this rank is stuck, and its watchdog cannot report where: %s\n";

std::string Text(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(100)));
}

}  // namespace

Watchdog::Watchdog(const Communicator& communicator, const CurrentInstruction& current, absl::Duration timeout, Say say)
    : communicator_(communicator),
      current_(current),
      patience_(timeout / 2),
      say_(std::move(say)),
      thread_([this](const std::stop_token& ending) { Watch(ending); }) {}

void Watchdog::Watch(const std::stop_token& ending) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any end;
  const auto look = absl::ToChronoMilliseconds(patience_ / 8);
  while (!end.wait_for(lock, ending, look, [&] { return ending.stop_requested(); })) LookAndSay();
}

void Watchdog::LookAndSay() {
  try {
    if (const std::string text = Look(); !text.empty()) say_(text);
  } catch (const std::exception& error) {
    std::fprintf(stderr, kCannotSay, communicator_.rank(), error.what());
  } catch (...) {
    std::fprintf(stderr, kCannotSay, communicator_.rank(), "an exception without a message");
  }
}

std::string Watchdog::Look() {
  const std::optional<WaitInProgress> wait = communicator_.CurrentWait();
  std::optional<double> since;
  if (wait.has_value()) {
    since = wait->since_seconds;
    waited_until_ = MonotonicSeconds();
  } else if (since = current_.since_seconds(); since.has_value()) {
    since = std::max(*since, waited_until_);  // an instruction's wait is no work
  }
  if (!since.has_value() || since == reported_) return "";
  const absl::Duration lasted = absl::Seconds(MonotonicSeconds() - *since);
  if (lasted < patience_) return "";
  reported_ = since;
  const std::string doing = wait.has_value() ? absl::StrCat("waiting for ", Text(lasted), ": ", wait->description)
                                             : absl::StrCat("busy for ", Text(lasted));
  return absl::StrCat("watchdog [rank ", communicator_.rank(), "]: ", doing, "; at ", current_.Describe());
}

}  // namespace hadal
