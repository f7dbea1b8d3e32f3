#include "tests/support/kernel_emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "runtime/check.h"

namespace hadal::cuda {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kLanes = 32;
constexpr int kPoison = 0xFF;

// The emulator whose kernel runs in this OS thread. Global, because a kernel's functions have no argument for it.
thread_local KernelEmulator* current_emulator = nullptr;

bool SamePlace(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

}  // namespace

KernelEmulator::KernelEmulator(uint64_t seed) : random_(seed) {}

KernelEmulator::~KernelEmulator() {
  for (void* start : own_) std::free(start);
}

KernelEmulator& KernelEmulator::Current() {
  HADAL_CHECK(current_emulator != nullptr);
  return *current_emulator;
}

void* KernelEmulator::Allocate(int64_t bytes) {
  constexpr int64_t kBoundary = 256;  // as cudaMalloc's
  void* start = std::aligned_alloc(kBoundary, (bytes + kBoundary) / kBoundary * kBoundary);
  HADAL_CHECK(start != nullptr);
  std::memset(start, kPoison, bytes);
  own_.push_back(start);
  Register(start, bytes);
  return start;
}

void KernelEmulator::Register(const void* memory, int64_t bytes) {
  allocations_[static_cast<const std::byte*>(memory)] = bytes;
}

void KernelEmulator::Unregister(const void* memory) {
  allocations_.erase(static_cast<const std::byte*>(memory));
  last_allocation_ = {nullptr, 0};
}

void KernelEmulator::AroundLaunches(std::function<void()> before, std::function<void()> after) {
  before_ = std::move(before);
  after_ = std::move(after);
}

void KernelEmulator::Run(const LaunchShape& shape, const std::function<void()>& body) {
  HADAL_CHECK_GE(shape.threads, kLanes);
  HADAL_CHECK_LE(shape.threads, 1024);
  HADAL_CHECK_EQ(shape.threads % kLanes, 0);
  HADAL_CHECK_GE(shape.blocks_x, 1);
  HADAL_CHECK_GE(shape.blocks_y, 1);
  HADAL_CHECK_LE(shape.blocks_y, 65535);
  if (divert_) {
    divert_(shape, [this, shape, body] { RunNow(shape, body); });
  } else {
    RunNow(shape, body);
  }
}

void KernelEmulator::RunNow(const LaunchShape& shape, const std::function<void()>& body) {
  HADAL_CHECK(current_emulator == nullptr);
  if (before_) before_();
  shape_ = shape;
  body_ = &body;
  current_emulator = this;
  if (counter_ != nullptr) counter_->Begin();
  std::vector<int64_t> order(shape.blocks_x * shape.blocks_y);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  for (const int64_t block : order) {
    block_ = block;
    StartBlock();
    RunBlock();
  }
  current_emulator = nullptr;
  if (after_) after_();
}

void KernelEmulator::StartBlock() {
  shared_.clear();
  shared_bytes_ = 0;
  races_.Meet();
  runnable_.clear();
  if (fibers_.size() < static_cast<size_t>(shape_.threads)) fibers_.resize(shape_.threads);
  for (int t = 0; t < shape_.threads; ++t) {
    Fiber& fiber = fibers_[t];
    fiber.state = State::kRunnable;
    runnable_.push_back(t);
  }
}

// A fiber runs one thread of block after block. Between blocks it holds nothing that must be destroyed.
void KernelEmulator::FiberMain() {
  KernelEmulator& emulator = Current();
  while (true) {
    (*emulator.body_)();
    emulator.Wait(State::kReturned, std::source_location());
  }
}

void KernelEmulator::RunBlock() {
  if (__builtin_setjmp(scheduler_) == 0) SwitchTo(Next());
  running_ = -1;
  for (int t = 0; t < shape_.threads; ++t) {
    if (fibers_[t].state != State::kReturned) Diverged();
  }
  if (counter_ != nullptr) counter_->Meet(0, shape_.threads);
}

// Takes a random runnable thread; -1: there is none.
int KernelEmulator::Next() {
  if (runnable_.empty()) return -1;
  const size_t choice = (random_() >> 32) * runnable_.size() >> 32;
  const int thread = runnable_[choice];
  runnable_[choice] = runnable_.back();
  runnable_.pop_back();
  return thread;
}

// Continues the thread, or, with -1, RunBlock.
void KernelEmulator::SwitchTo(int thread) {
  if (thread < 0) __builtin_longjmp(scheduler_, 1);
  Fiber& fiber = fibers_[thread];
  running_ = thread;
  if (fiber.stack != nullptr) __builtin_longjmp(fiber.jump, 1);
  fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  // Stacks begin at different offsets of a page; otherwise their tops would share a few sets of the CPU's cache.
  const size_t offset = thread % 64 * 64;
  ucontext_t entry;
  getcontext(&entry);
  entry.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = kStackBytes - offset};
  entry.uc_link = nullptr;
  makecontext(&entry, &KernelEmulator::FiberMain, 0);
  setcontext(&entry);
  std::abort();
}

// Returns when the thread is to continue. Meanwhile others run.
void KernelEmulator::Wait(State state, const std::source_location& where) {
  const int thread = running_;
  Fiber& fiber = fibers_[thread];
  fiber.state = state;
  fiber.where = where;
  if (state == State::kAtBarrier) ReleaseIfComplete(0, shape_.threads, state);
  if (state == State::kInWarpWork) ReleaseIfComplete(thread / kLanes * kLanes, kLanes, state);
  const int next = Next();
  if (next != thread && __builtin_setjmp(fiber.jump) == 0) SwitchTo(next);
}

// Resumes threads [first, first + count) when all of them wait at the same place.
void KernelEmulator::ReleaseIfComplete(int first, int count, State state) {
  const auto begin = fibers_.begin() + first, end = begin + count;
  if (!std::all_of(begin, end, [&](const Fiber& fiber) { return fiber.state == state; })) return;
  if (!std::all_of(begin, end, [&](const Fiber& fiber) { return SamePlace(fiber.where, begin->where); })) Diverged();
  if (counter_ != nullptr) counter_->Meet(first, count);
  if (state == State::kInWarpWork) {
    std::array<void*, kLanes> brought;
    for (int lane = 0; lane < kLanes; ++lane) brought[lane] = begin[lane].brought;
    begin->work(brought);
  } else {
    races_.Meet();
    if (study_ != nullptr) study_->barriers.push_back(begin->where);
  }
  for (int t = first; t < first + count; ++t) {
    fibers_[t].state = State::kRunnable;
    runnable_.push_back(t);
  }
}

void KernelEmulator::Barrier(const std::source_location& where) {
  if (study_ != nullptr && study_->without != nullptr && SamePlace(where, *study_->without)) return;
  Wait(State::kAtBarrier, where);
}

uint64_t KernelEmulator::Shuffle(uint64_t value, int source_lane, const std::source_location& where) {
  struct Trade {
    uint64_t given, received;
    int source_lane;
  } trade = {value, 0, source_lane};
  Together(
      &trade,
      [](const std::array<void*, kLanes>& brought) {
        for (void* lane : brought) {
          Trade& mine = *static_cast<Trade*>(lane);
          mine.received = static_cast<const Trade*>(brought[mine.source_lane])->given;
        }
      },
      where);
  return trade.received;
}

void KernelEmulator::Together(void* brought, WarpWork work, const std::source_location& where) {
  Fiber& fiber = fibers_[running_];
  fiber.brought = brought;
  fiber.work = work;
  Wait(State::kInWarpWork, where);
}

void KernelEmulator::CheckAccess(AccessKind kind, const void* address, size_t bytes, size_t alignment,
                                 const std::source_location& where) {
  const char* verb = kind == AccessKind::kLoad ? "reads" : "writes";
  const auto* start = static_cast<const std::byte*>(address);
  const auto inside = [&](const std::pair<const std::byte*, int64_t>& allocation) {
    return start >= allocation.first && start + bytes <= allocation.first + allocation.second;
  };
  if (!inside(last_allocation_)) {
    auto next = allocations_.upper_bound(start);
    if (next == allocations_.begin()) Fail("%s %zu bytes at %p, before every allocation", verb, bytes, address);
    last_allocation_ = *std::prev(next);
    if (!inside(last_allocation_)) {
      Fail("%s %zu bytes at offset %ld of an allocation of %ld bytes", verb, bytes,
           static_cast<long>(start - last_allocation_.first), static_cast<long>(last_allocation_.second));
    }
  }
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
    Fail("%s %zu bytes at offset %ld, which is not aligned to %zu", verb, bytes,
         static_cast<long>(start - last_allocation_.first), alignment);
  }
  if (counter_ != nullptr) counter_->Note(running_, kind, address, bytes, where);
}

void* KernelEmulator::SharedStorage(const void* identity, size_t bytes) {
  constexpr size_t kBoundary = alignof(std::max_align_t);
  const auto [array, added] = shared_.try_emplace(identity, shared_bytes_);
  std::byte* const start = shared_memory_.get() + array->second;
  if (added) {
    shared_bytes_ += (bytes + kBoundary - 1) / kBoundary * kBoundary;
    HADAL_CHECK_LE(shared_bytes_, kSharedBytes);
    races_.Cover(shared_bytes_);
    std::memset(start, kPoison, bytes);
  }
  return start;
}

void KernelEmulator::Race(AccessKind kind, const SharedRaces::Other& other, size_t bytes,
                          const std::source_location& where) {
  if (study_ != nullptr && !study_->race.empty()) return;
  const auto line = [](const std::source_location& place) {
    return std::string(place.file_name()) + ":" + std::to_string(place.line());
  };
  const std::string text = std::string(kind == AccessKind::kSharedLoad ? "reads " : "writes ") + std::to_string(bytes) +
                           " shared bytes at " + line(where) + " in a race with thread " +
                           std::to_string(other.thread) + " at " + line(other.where);
  if (study_ == nullptr) Fail("%s", text.c_str());
  study_->race = text;
}

void KernelEmulator::Fail(const char* format, ...) const {
  std::fprintf(stderr, "CUDA emulator: thread %d of block (%ld, %ld) ", running_, static_cast<long>(block_x()),
               static_cast<long>(block_y()));
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

// Prints every place where threads wait, with the first of these threads and their number.
void KernelEmulator::Diverged() const {
  std::fprintf(stderr, "CUDA emulator: the threads of block (%ld, %ld) do not reach the same place:\n",
               static_cast<long>(block_x()), static_cast<long>(block_y()));
  const auto same = [](const Fiber& a, const Fiber& b) {
    return a.state == b.state && (a.state == State::kReturned || SamePlace(a.where, b.where));
  };
  for (int t = 0; t < shape_.threads; ++t) {
    const Fiber& fiber = fibers_[t];
    const auto like = [&](const Fiber& other) { return same(other, fiber); };
    if (std::any_of(fibers_.begin(), fibers_.begin() + t, like)) continue;
    const long count = std::count_if(fibers_.begin(), fibers_.begin() + shape_.threads, like);
    if (fiber.state == State::kReturned) {
      std::fprintf(stderr, "  thread %d has returned (%ld like it)\n", t, count);
    } else {
      std::fprintf(stderr, "  thread %d waits at a %s, %s:%u (%ld like it)\n", t,
                   fiber.state == State::kAtBarrier ? "barrier" : "shuffle or fragment", fiber.where.file_name(),
                   static_cast<unsigned>(fiber.where.line()), count);
    }
  }
  std::abort();
}

}  // namespace hadal::cuda
