#include "tests/support/emulated_nccl.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EmulatedDevice;
using testing::EmulatedNccl;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The emulation's own strictness: calls of the two sides that do not match end as an error, with both lists.
TEST(EmulatedNccl, FindsCallsThatDoNotMatch) {
  EmulatedNccl nccl(9);
  EmulatedDevice devices[] = {EmulatedDevice(1), EmulatedDevice(2)};
  std::unique_ptr<NcclLibrary> libraries[] = {nccl.LibraryFor(devices[0]), nccl.LibraryFor(devices[1])};
  NcclUniqueId id{};
  ASSERT_EQ(libraries[0]->GetUniqueId(id), kNcclSuccess);
  NcclComm comms[2];
  NcclResult state = kNcclSuccess;
  ASSERT_EQ(libraries[0]->CommInit(comms[0], id, 0, 4), kNcclInProgress);
  ASSERT_EQ(libraries[0]->AsyncError(comms[0], state), kNcclSuccess);
  EXPECT_EQ(state, kNcclInProgress) << "joined alone";
  ASSERT_EQ(libraries[1]->CommInit(comms[1], id, 1, 4), kNcclInProgress);
  std::byte* memory[2];
  DeviceQueues::Queue queues[2];
  DeviceQueues::Event events[2];
  const auto start = [&](int side, bool send, int64_t bytes) {
    devices[side].queues().Record(events[side], DeviceQueues::kMain);
    devices[side].queues().Await(queues[side], events[side]);
    return send ? libraries[side]->Send(comms[side], memory[side], bytes, 1 - side, queues[side])
                : libraries[side]->Receive(comms[side], memory[side], bytes, 1 - side, queues[side]);
  };
  for (int side = 0; side < 2; ++side) {
    memory[side] = devices[side].Allocate(256).value();
    queues[side] = devices[side].queues().MakeQueue().value();
    events[side] = devices[side].queues().MakeEvent().value();
  }
  start(0, true, 64);
  start(1, false, 64);
  start(0, true, 32);
  EXPECT_THAT(nccl.TakeMisuses(), IsEmpty());
  start(1, false, 16);  // not what was sent
  EXPECT_THAT(nccl.TakeMisuses(), ElementsAre(AllOf(HasSubstr("rank 0: send 64 bytes, send 32 bytes"),
                                                    HasSubstr("rank 1: receive 64 bytes, receive 16 bytes"))));
  ASSERT_EQ(libraries[0]->AsyncError(comms[0], state), kNcclSuccess);
  EXPECT_EQ(state, kNcclInvalidUsage);
  for (int side = 0; side < 2; ++side) {
    libraries[side]->Abort(comms[side]);
    devices[side].queues().DestroyEvent(events[side]);
    devices[side].queues().DestroyQueue(queues[side]);
    devices[side].Free(memory[side]);
  }
}

}  // namespace
}  // namespace hadal
