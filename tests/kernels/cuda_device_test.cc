// CudaDevice where something is missing or breaks: over an emulated CUDA runtime, which is told to.
#include "kernels/cuda_host/cuda_device.h"

#include <thread>

#include "gmock/gmock.h"
#include "kernels/add.h"
#include "kernels/cuda_host/held_streams.h"
#include "kernels/cuda_host/own_memory.h"
#include "runtime/arena.h"
#include "tests/support/emulated_cuda.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

EmulatedCuda& Cuda() { return EmulatedCuda::Instance(); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  ~CudaDeviceTest() override {
    Cuda().machine = {};
    EXPECT_EQ(Cuda().used_bytes(), 0) << "memory is left";
    EXPECT_EQ(Cuda().used_host_bytes(), 0);
    EXPECT_EQ(Cuda().graphs(), 0);
  }
};

TEST_F(CudaDeviceTest, WithoutOneItSaysWhy) {
  Cuda().machine.driver = 0;
  EXPECT_EQ(cuda::OpenCudaDevice({}).status(), absl::NotFoundError("no NVIDIA driver"));
  Cuda().machine = {.devices = 0};
  EXPECT_EQ(cuda::OpenCudaDevice({}).status(), absl::UnavailableError("no GPU is visible (CUDA_VISIBLE_DEVICES?)"));
  Cuda().machine = {.driver = 11040};
  const absl::Status driver = cuda::OpenCudaDevice({}).status();
  EXPECT_EQ(driver.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(driver.message(), HasSubstr("the driver is for CUDA 11.4, older than"));
  Cuda().machine = {.major = 7};
  const absl::Status old = cuda::OpenCudaDevice({}).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(old.message(), HasSubstr("Emulated GPU, sm_70"));
  EXPECT_THAT(old.message(), HasSubstr("is too old"));
}

TEST_F(CudaDeviceTest, IsLookedAtWithoutBeingTaken) {
  Cuda().machine = {.driver = 13010, .devices = 2};
  const auto second = cuda::LookAtCudaDevice({.local_rank = 1});
  EXPECT_EQ(second->model, "Emulated GPU");
  EXPECT_EQ(second->architecture, "sm_90");
  EXPECT_EQ(second->bus, "0000:11:00.0");
  EXPECT_EQ(second->identity, "GPU-02020202020202020202020202020202");
  EXPECT_EQ(second->memory_bytes, Cuda().machine.bytes);
  EXPECT_EQ(second->free_bytes, Cuda().machine.bytes);
  EXPECT_EQ(second->driver, 13010);
  EXPECT_EQ(second->runtime, CUDART_VERSION);
  EXPECT_EQ(second->cublas / 10000, CUDART_VERSION / 1000);
  Cuda().machine = {.major = 7};
  EXPECT_EQ(cuda::LookAtCudaDevice({})->architecture, "sm_70") << "what is refused is known all the same";
  Cuda().machine = {.devices = 0};
  EXPECT_EQ(cuda::LookAtCudaDevice({}).status().code(), absl::StatusCode::kUnavailable);
}

// With 8 queues for 24 streams two others are in the queue of the blocked stream, and two in that of the one behind it.
TEST_F(CudaDeviceTest, StreamsInOneHardwareQueueHoldEachOther) {
  for (const auto& [queues, held] : {std::pair(32, 0), std::pair(8, 4)}) {
    Cuda().machine.hardware_queues = queues;
    const absl::StatusOr<cuda::HeldStreams> counted = cuda::CountHeldStreams(24);
    EXPECT_EQ(counted->most, held);
    EXPECT_EQ(counted->average, held);
  }
}

TEST_F(CudaDeviceTest, MemoryThatIsTakenElsewhereIsAnErrorAndLeavesNothing) {
  Cuda().machine.bytes = cuda::OwnMemory::kDeviceBytes - 1;
  EXPECT_EQ(cuda::OpenCudaDevice({}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(CudaDeviceTest, EachRankOfAHostTakesItsOwn) {
  Cuda().machine.devices = 4;
  const auto first = cuda::OpenCudaDevice({.local_rank = 1}), second = cuda::OpenCudaDevice({.local_rank = 2});
  EXPECT_EQ((*first)->Identity(), "GPU-02020202020202020202020202020202");
  EXPECT_EQ((*second)->Identity(), "GPU-03030303030303030303030303030303");
  std::byte* const memory = *(*second)->Allocate(40);  // of the second, which this thread has chosen last
  const Vector values = {reinterpret_cast<float*>(memory), 10};
  const Stream stream = Stream::On(**second, 1);
  Add(stream, {.sum = values, .values = values});
  auto* const seen = reinterpret_cast<float*>(*(*second)->AllocateHost(40));
  DeviceQueues& queues = (*second)->queues();
  const DeviceQueues::Queue queue = *queues.MakeQueue();
  const DeviceQueues::Event added = *queues.MakeEvent(), copied = *queues.MakeEvent();
  queues.Record(added, DeviceQueues::kMain);
  std::thread([&] {
    queues.Await(queue, added);
    (*second)->EnqueueCopyOut(queue, seen, memory, 40);
    queues.Record(copied, queue);
    queues.AwaitOnHost(copied, "a copy", nullptr);
  }).join();
  (*second)->Synchronize();
  EXPECT_EQ(std::vector<float>(seen, seen + 10), std::vector<float>(10, 0.0f)) << "another thread may read from it";
  queues.DestroyEvent(added);
  queues.DestroyEvent(copied);
  queues.DestroyQueue(queue);
  (*second)->FreeHost(reinterpret_cast<std::byte*>(seen));
  EXPECT_DEATH(Add(Stream::On(**first, 1), {.sum = values, .values = values}), "owner->device == CurrentDevice");
  (*second)->Free(memory);
}

TEST_F(CudaDeviceTest, ItTakesWhatThePlanCounts) {
  const auto device = cuda::OpenCudaDevice({});
  EXPECT_EQ(Cuda().used_bytes(), cuda::OwnMemory::kDeviceBytes);
  EXPECT_EQ(Cuda().used_host_bytes(), cuda::OwnMemory::kHostBytes);
  const int64_t free_bytes = (*device)->FreeBytes();
  std::byte* const memory = *(*device)->Allocate(123456789);
  EXPECT_EQ(Cuda().used_bytes(), cuda::OwnMemory::kDeviceBytes + 123456789);
  EXPECT_NEAR((*device)->FreeBytes(), free_bytes - 123456789, 2 << 20) << "a driver gives whole pages";
  (*device)->Free(memory);
}

TEST_F(CudaDeviceTest, AnAllocationThatDoesNotFitSpoilsNothing) {
  Cuda().machine.bytes = 64 << 20;  // of which it takes 41
  const auto device = cuda::OpenCudaDevice({});
  const Stream stream = Stream::On(**device, 1);
  float* const values = reinterpret_cast<float*>(*(*device)->Allocate(40));
  EXPECT_EQ((*device)->Allocate(1 << 25).status().code(), absl::StatusCode::kResourceExhausted);
  Add(stream, {.sum = {values, 10}, .values = {values, 10}});  // finds no error of before
  stream.Synchronize();
  (*device)->Free(reinterpret_cast<std::byte*>(values));
}

TEST_F(CudaDeviceTest, AGraphThatDoesNotFitSpoilsNothing) {
  const auto device = cuda::OpenCudaDevice({});
  const Stream stream = Stream::On(**device, 1);
  float* const values = reinterpret_cast<float*>(*(*device)->Allocate(40));
  const std::vector<float> ones(10, 1.0f);
  stream.FromHost(values, ones.data(), 40);
  Cuda().machine.memory_for_graphs = false;
  (*device)->BeginCapture();
  Add(stream, {.sum = {values, 10}, .values = {values, 10}});
  EXPECT_EQ((*device)->EndCapture().status().code(), absl::StatusCode::kResourceExhausted);
  Add(stream, {.sum = {values, 10}, .values = {values, 10}});
  std::vector<float> seen(10);
  stream.ToHost(seen.data(), values, 40);
  EXPECT_EQ(seen, std::vector<float>(10, 2.0f)) << "the recorded launch did not run, the other did";
  (*device)->Free(reinterpret_cast<std::byte*>(values));
}

TEST_F(CudaDeviceTest, AKernelsFaultEndsTheProcessWithTheDriversWords) {
  const auto device = cuda::OpenCudaDevice({});
  EXPECT_DEATH(
      {
        Cuda().BreakNextWork();
        std::byte* const memory = *(*device)->Allocate(40);
        (*device)->Clear(memory, 40);
        (*device)->Synchronize();
      },
      "the GPU failed .*an illegal memory access was encountered");
}

}  // namespace
}  // namespace hadal::testing
