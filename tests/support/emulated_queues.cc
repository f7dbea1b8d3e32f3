#include "tests/support/emulated_queues.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "runtime/check.h"
#include "runtime/clock.h"

namespace hadal::testing {
namespace {

bool AllDone(const PendingList& list) {
  return std::all_of(list.begin(), list.end(), [](const auto& work) { return work->Done(); });
}

}  // namespace

EmulatedQueues::~EmulatedQueues() { HADAL_CHECK(queues_.empty() && events_.empty()); }

int EmulatedQueues::HardwareQueues() {
  const char* const text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return text == nullptr ? 8 : std::clamp(std::atoi(text), 1, 32);
}

PendingList EmulatedQueues::InHardwareQueueOf(int stream) const {
  PendingList list;
  for (const auto& [other, work] : last_put_) {
    if (other % hardware_queues_ == stream % hardware_queues_) list.push_back(work);
  }
  return list;
}

EmulatedQueues::QueueState& EmulatedQueues::StateOf(Queue queue) {
  const auto found = queues_.find(queue);
  HADAL_CHECK(found != queues_.end());
  return *found->second;
}

EmulatedQueues::EventState& EmulatedQueues::StateOf(Event event, bool recorded) {
  const auto found = events_.find(event);
  HADAL_CHECK(found != events_.end());
  HADAL_CHECK(found->second->recorded || !recorded);
  return *found->second;
}

int EmulatedQueues::TakeStreams(int count) {
  HADAL_CHECK_LE(streams_ + count, kMostResiduals);
  return std::exchange(streams_, streams_ + count);
}

absl::StatusOr<DeviceQueues::Queue> EmulatedQueues::MakeQueue() {
  standstill_();
  auto queue = std::make_unique<QueueState>();
  QueueState* const made = queue.get();
  const std::lock_guard lock(mutex_);
  made->stream = TakeStreams(1);
  queues_[made] = std::move(queue);
  return made;
}

absl::StatusOr<DeviceQueues::Event> EmulatedQueues::MakeEvent() {
  standstill_();
  auto event = std::make_unique<EventState>();
  EventState* const made = event.get();
  const std::lock_guard lock(mutex_);
  events_[made] = std::move(event);
  return made;
}

void EmulatedQueues::DestroyQueue(Queue queue) {
  const std::lock_guard lock(mutex_);
  HADAL_CHECK(AllDone(StateOf(queue).before));
  last_put_.erase(StateOf(queue).stream);
  queues_.erase(queue);
}

void EmulatedQueues::DestroyEvent(Event event) {
  const std::lock_guard lock(mutex_);
  HADAL_CHECK_EQ(events_.erase(event), 1u);
}

void EmulatedQueues::Record(Event event, Queue queue) {
  if (main_order_.records([=, this] { Record(event, queue); })) return;
  const std::lock_guard lock(mutex_);
  if (queue == kMain || queue == last_kernel_) last_kernel_ = nullptr;
  EventState& state = StateOf(event, false);
  state.recorded = true;
  state.of = queue == kMain ? main_ : StateOf(queue).before;
  state.enqueued = EventState::kOnQueue;
  state.reached_seconds = 0;
  if (queue != kMain) return;
  state.enqueued = main_order_.enqueued();
  if (state.of.empty()) state.reached_seconds = MonotonicSeconds();
  const PendingList beside = InHardwareQueueOf(0);
  state.of.insert(state.of.end(), beside.begin(), beside.end());
}

void EmulatedQueues::Await(Queue queue, Event event) {
  if (main_order_.records([=, this] { Await(queue, event); })) return;
  if (queue == kMain) {
    while (!Reached(event)) std::this_thread::yield();
    return;
  }
  const std::lock_guard lock(mutex_);
  if (queue == last_kernel_) last_kernel_ = nullptr;
  QueueState& state = StateOf(queue);
  const EventState& awaited = StateOf(event, true);
  state.before.insert(state.before.end(), awaited.of.begin(), awaited.of.end());
  state.awaited = true;
}

bool EmulatedQueues::Reached(Event event) {
  std::unique_lock lock(mutex_);
  EventState& state = StateOf(event, true);
  const PendingList of = state.of;
  const int64_t enqueued = state.enqueued;
  lock.unlock();
  if (!AllDone(of)) return false;
  if (enqueued == EventState::kOnQueue) return true;
  if (state.reached_seconds == 0) state.reached_seconds = MonotonicSeconds();
  main_order_.seen_done(enqueued);
  return true;
}

void EmulatedQueues::AwaitOnHost(Event event, const char* /*what*/, const std::function<void()>* meanwhile) {
  while (!Reached(event)) {
    if (meanwhile != nullptr) (*meanwhile)();
    std::this_thread::yield();
  }
  const std::lock_guard lock(mutex_);
  const EventState& state = StateOf(event, true);
  if (state.enqueued != EventState::kOnQueue) main_order_.waited_until(state.enqueued);
}

double EmulatedQueues::SecondsBetween(Event first, Event second) {
  HADAL_CHECK(Reached(first) && Reached(second));
  const std::lock_guard lock(mutex_);
  const EventState &from = StateOf(first, true), &to = StateOf(second, true);
  HADAL_CHECK(from.reached_seconds > 0 && to.reached_seconds > 0);  // on the main order
  return to.reached_seconds - from.reached_seconds;
}

bool EmulatedQueues::Idle() const {
  PendingList all;
  std::unique_lock lock(mutex_);
  for (const auto& [queue, state] : queues_) all.insert(all.end(), state->before.begin(), state->before.end());
  lock.unlock();
  return AllDone(all);
}

PendingList EmulatedQueues::Put(Queue queue, int beside, std::shared_ptr<PendingWork> work) {
  const std::lock_guard lock(mutex_);
  QueueState& state = StateOf(queue);
  HADAL_CHECK(std::exchange(state.awaited, false));
  PendingList behind = std::exchange(state.before, {work});
  for (const int stream : {state.stream, beside}) {
    const PendingList others = InHardwareQueueOf(stream);
    behind.insert(behind.end(), others.begin(), others.end());
  }
  last_put_[state.stream] = last_put_[beside] = std::move(work);
  return behind;
}

PendingList EmulatedQueues::PutKernel(Queue queue, std::shared_ptr<PendingWork> kernel) {
  const std::lock_guard lock(mutex_);
  QueueState& state = StateOf(queue);
  HADAL_CHECK(std::exchange(state.awaited, false) || last_kernel_ == queue);
  last_kernel_ = queue;
  PendingList behind = InHardwareQueueOf(state.stream);
  behind.insert(behind.end(), state.before.begin(), state.before.end());
  state.before = {std::move(kernel)};
  return behind;
}

}  // namespace hadal::testing
