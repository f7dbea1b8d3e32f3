#include "tests/support/emulated_queues.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace hadal::testing {
namespace {

bool AllDone(const PendingList& list) {
  return std::all_of(list.begin(), list.end(), [](const auto& work) { return work->Done(); });
}

}  // namespace

EmulatedQueues::~EmulatedQueues() { HADAL_CHECK(queues_.empty() && events_.empty()); }

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

absl::StatusOr<DeviceQueues::Queue> EmulatedQueues::MakeQueue() {
  standstill_();
  auto queue = std::make_unique<QueueState>();
  QueueState* const made = queue.get();
  const std::lock_guard lock(mutex_);
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
  queues_.erase(queue);
}

void EmulatedQueues::DestroyEvent(Event event) {
  const std::lock_guard lock(mutex_);
  HADAL_CHECK_EQ(events_.erase(event), 1u);
}

void EmulatedQueues::Record(Event event, Queue queue) {
  const std::lock_guard lock(mutex_);
  last_kernel_ = nullptr;
  EventState& state = StateOf(event, false);
  state.recorded = true;
  state.of = queue == kMain ? main_ : StateOf(queue).before;
}

void EmulatedQueues::Await(Queue queue, Event event) {
  const std::lock_guard lock(mutex_);
  last_kernel_ = nullptr;
  QueueState& state = StateOf(queue);
  const EventState& awaited = StateOf(event, true);
  state.before.insert(state.before.end(), awaited.of.begin(), awaited.of.end());
  state.awaited = true;
}

bool EmulatedQueues::Reached(Event event) {
  std::unique_lock lock(mutex_);
  const PendingList of = StateOf(event, true).of;
  lock.unlock();
  return AllDone(of);
}

bool EmulatedQueues::Idle() const {
  PendingList all;
  std::unique_lock lock(mutex_);
  for (const auto& [queue, state] : queues_) all.insert(all.end(), state->before.begin(), state->before.end());
  lock.unlock();
  return AllDone(all);
}

PendingList EmulatedQueues::Put(Queue queue, std::shared_ptr<PendingWork> work) {
  const std::lock_guard lock(mutex_);
  QueueState& state = StateOf(queue);
  HADAL_CHECK(std::exchange(state.awaited, false));
  return std::exchange(state.before, {std::move(work)});
}

PendingList EmulatedQueues::PutKernel(Queue queue, std::shared_ptr<PendingWork> kernel) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(last_kernel_, queue) == queue) StateOf(queue).awaited = true;
  return Put(queue, std::move(kernel));
}

}  // namespace hadal::testing
