#include "runtime/device_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

// Between two looks at the clock.
constexpr absl::Duration kShortestLook = absl::Milliseconds(1), kLongestLook = absl::Seconds(5);
constexpr char kAdvice[] = ". The GPU or its driver hangs (see dmesg and nvidia-smi -q)";

}  // namespace

DeviceWatch::Wait::Wait(DeviceWatch& watch, const char* what)
    : watch_(watch), what_(what), since_seconds_(MonotonicSeconds()) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.waits_.push_back(this);
}

DeviceWatch::Wait::~Wait() {
  const std::lock_guard lock(watch_.mutex_);
  std::erase(watch_.waits_, this);
  const auto calls = watch_.last_call_seconds_.find(std::this_thread::get_id());
  if (calls != watch_.last_call_seconds_.end()) calls->second.reset();
}

DeviceWatch::DeviceWatch(Options options) : options_(std::move(options)) {
  if (options_.timeout < absl::InfiniteDuration()) thread_ = std::thread([this] { Watch(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::BeforeCall() {
  const double now = MonotonicSeconds();
  const std::lock_guard lock(mutex_);
  last_call_seconds_[std::this_thread::get_id()] = now;
}

std::string DeviceWatch::Overdue() const {
  const double now = MonotonicSeconds();
  const auto lasted = [&](double since_seconds) { return absl::Seconds(now - since_seconds); };
  if (!waits_.empty() && lasted(waits_.front()->since_seconds_) >= options_.timeout) {
    return absl::StrCat("the device has not finished within ", absl::FormatDuration(options_.timeout), ": ",
                        waits_.front()->what_, kAdvice);
  }
  for (const auto& [thread, seconds] : last_call_seconds_) {
    if (!seconds.has_value() || lasted(*seconds) < 2 * options_.timeout) continue;
    return absl::StrCat("the device has not responded for ", absl::FormatDuration(2 * options_.timeout),
                        ": a call of its driver, or launched work", kAdvice);
  }
  return "";
}

// At the end of the oldest wait, if that comes first: other ranks may be about to end the job because of it.
absl::Duration DeviceWatch::UntilNextLook() const {
  absl::Duration until = std::min(options_.timeout / 8, kLongestLook);
  if (!waits_.empty()) {
    const absl::Duration lasted = absl::Seconds(MonotonicSeconds() - waits_.front()->since_seconds_);
    until = std::min(until, options_.timeout - lasted);
  }
  return std::max(until, kShortestLook);
}

void DeviceWatch::Watch() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, absl::ToChronoMilliseconds(UntilNextLook()), [this] { return ending_; })) {
    const std::string what = Overdue();
    if (what.empty()) continue;
    lock.unlock();
    return options_.hung(what);
  }
}

}  // namespace hadal
