#include "runtime/thread_team.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/compute_thread.h"

namespace hadal {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A number that one thread advances while another waits for it.
class alignas(64) Signal {
 public:
  void Advance(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    // Either this exchange sees that the other side sleeps, or the other side's last check sees the new value.
    if (!asleep_.load(std::memory_order_seq_cst) || !asleep_.exchange(false)) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_one();
  }

  // Returns the number once it is not `seen`; spins for a while, then sleeps.
  uint32_t AwaitOther(uint32_t seen) {
    for (const Stopwatch watch; watch.Seconds() < ThreadTeam::kSpinSeconds;) {
      for (int i = 0; i < kLooksAtTheClock; ++i) {
        if (const uint32_t value = value_.load(std::memory_order_acquire); value != seen) return value;
        Pause();
      }
    }
    std::unique_lock lock(mutex_);
    uint32_t value = seen;
    changed_.wait(lock, [&] {
      asleep_.store(true, std::memory_order_seq_cst);
      value = value_.load(std::memory_order_seq_cst);
      return value != seen;
    });
    asleep_.store(false, std::memory_order_relaxed);
    return value;
  }

 private:
  static constexpr int kLooksAtTheClock = 32;  // reads the clock once in this many pauses

  std::atomic<uint32_t> value_{0};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// The exception that body(index) throws, or null.
std::exception_ptr Call(absl::FunctionRef<void(int)> body, int index) {
  try {
    body(index);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

class ThreadTeam::Worker {
 public:
  // Returns once the thread is prepared: so where memory is short, a later thread's start fails, and not this one.
  explicit Worker(int index) : index_(index), thread_([this] { Loop(); }) { ended_seen_ = ended_.AwaitOther(0); }
  ~Worker() {
    Begin(nullptr);
    thread_.join();
  }

  // Null `body`: the worker ends.
  void Begin(const absl::FunctionRef<void(int)>* body) {
    body_ = body;
    begun_.Advance(++regions_);
  }
  // Runs the part here if the worker has not begun it.
  void RunIfNotBegun() {
    taken_back_ = Take(regions_);
    if (taken_back_) error_ = Call(*body_, index_);
  }
  // Waits until the part has ended; returns the exception that the body threw, or null.
  std::exception_ptr AwaitEnd() {
    if (!taken_back_) ended_seen_ = ended_.AwaitOther(ended_seen_);
    return std::exchange(error_, nullptr);
  }

 private:
  // True for the first of the two threads that requests the part of `region`. The caller asks for each before it begins
  // the next, so that taken_ is `region` or the one before.
  bool Take(uint32_t region) {
    uint32_t before = region - 1;
    return taken_.compare_exchange_strong(before, region, std::memory_order_acq_rel);
  }

  void Loop() {
    constexpr uint32_t kPrepared = ~uint32_t{0};
    PrepareComputeThreadOn(signal_stack_);
    ended_.Advance(kPrepared);
    for (uint32_t region = 0;;) {
      region = begun_.AwaitOther(region);
      if (!Take(region)) continue;
      if (body_ == nullptr) break;
      error_ = Call(*body_, index_);
      ended_.Advance(region);
    }
    signal_stack_.Remove();
  }

  const int index_;
  SignalStack signal_stack_;
  uint32_t regions_ = 0;     // regions begun so far; used by the team's thread
  uint32_t ended_seen_ = 0;  // the last region that the worker ran; used by the team's thread
  bool taken_back_ = false;  // the caller runs the part of this region
  const absl::FunctionRef<void(int)>* body_ = nullptr;
  std::exception_ptr error_;  // of the last region
  std::atomic<uint32_t> taken_{0};
  Signal begun_, ended_;
  std::thread thread_;  // last member: the thread starts when all others are constructed
};

ThreadTeam::ThreadTeam() = default;
ThreadTeam::~ThreadTeam() = default;

ThreadTeam& ThreadTeam::OfThisThread() {
  thread_local ThreadTeam team;
  return team;
}

void ThreadTeam::Run(int threads, absl::FunctionRef<void(int)> body) {
  HADAL_CHECK_GE(threads, 1);
  HADAL_CHECK(!running_);
  while (static_cast<int>(workers_.size()) < threads - 1) {
    workers_.push_back(std::make_unique<Worker>(static_cast<int>(workers_.size()) + 1));
  }
  running_ = true;
  const double now = MonotonicSeconds();
  std::exception_ptr error;
  if (now < alone_until_) {
    for (int t = 0; t < threads; ++t) {
      const std::exception_ptr of_part = Call(body, t);
      if (error == nullptr) error = of_part;
    }
    seconds_alone_ += MonotonicSeconds() - now;
  } else {
    error = RunWithWorkers(threads, body);
  }
  running_ = false;
  if (error != nullptr) std::rethrow_exception(error);
}

std::exception_ptr ThreadTeam::RunWithWorkers(int threads, absl::FunctionRef<void(int)> body) {
  const double began = MonotonicSeconds();
  for (int t = 1; t < threads; ++t) workers_[t - 1]->Begin(&body);
  std::exception_ptr error = Call(body, 0);
  for (int t = threads - 1; t > 0; --t) workers_[t - 1]->RunIfNotBegun();
  const double own_seconds = MonotonicSeconds() - began;
  for (int t = 1; t < threads; ++t) {
    const std::exception_ptr of_worker = workers_[t - 1]->AwaitEnd();
    if (error == nullptr) error = of_worker;
  }
  const double ended = MonotonicSeconds();
  if (ended - began - own_seconds > std::max(kStallSeconds, 2 * threads * own_seconds)) {
    constexpr double kFirstSeconds = 0.01, kMostSeconds = 1;
    const bool soon = began - alone_until_ < 2 * alone_for_seconds_;
    alone_for_seconds_ = soon ? std::min(2 * alone_for_seconds_, kMostSeconds) : kFirstSeconds;
    alone_until_ = ended + alone_for_seconds_;
  }
  return error;
}

}  // namespace hadal
