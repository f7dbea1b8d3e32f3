#include "runtime/thread_team.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
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
    // Either this load sees that the other side sleeps, or the other side's last check sees the new value.
    if (!asleep_.load(std::memory_order_seq_cst)) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_one();
  }

  // Returns when the number is `value`; spins for a while, then sleeps.
  void Await(uint32_t value) {
    if (Spin(value)) return;
    std::unique_lock lock(mutex_);
    asleep_.store(true, std::memory_order_seq_cst);
    changed_.wait(lock, [&] { return value_.load(std::memory_order_seq_cst) == value; });
    asleep_.store(false, std::memory_order_relaxed);
  }

 private:
  bool Spin(uint32_t value) const {
    constexpr int kLooksAtTheClock = 32;  // reads the clock once in this many pauses
    for (const Stopwatch watch; watch.Seconds() < ThreadTeam::kSpinSeconds;) {
      for (int i = 0; i < kLooksAtTheClock; ++i) {
        if (value_.load(std::memory_order_acquire) == value) return true;
        Pause();
      }
    }
    return false;
  }

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
  explicit Worker(int index) : index_(index), thread_([this] { Loop(); }) {}
  ~Worker() {
    Begin(nullptr);
    thread_.join();
  }

  // Null `body`: the worker ends.
  void Begin(const absl::FunctionRef<void(int)>* body) {
    body_ = body;
    begun_.Advance(++regions_);
  }
  // Returns the exception that the body threw, or null.
  std::exception_ptr AwaitEnd() {
    ended_.Await(regions_);
    return std::exchange(error_, nullptr);
  }

 private:
  void Loop() {
    PrepareComputeThread();
    for (uint32_t region = 1;; ++region) {
      begun_.Await(region);
      if (body_ == nullptr) return;
      error_ = Call(*body_, index_);
      ended_.Advance(region);
    }
  }

  const int index_;
  uint32_t regions_ = 0;  // regions begun so far; used by the team's thread
  const absl::FunctionRef<void(int)>* body_ = nullptr;
  std::exception_ptr error_;  // of the last region
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
  for (int t = 1; t < threads; ++t) workers_[t - 1]->Begin(&body);
  std::exception_ptr error = Call(body, 0);
  for (int t = 1; t < threads; ++t) {
    const std::exception_ptr of_worker = workers_[t - 1]->AwaitEnd();
    if (error == nullptr) error = of_worker;
  }
  running_ = false;
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace hadal
