// Which device a run takes, and what people are told: over an emulated CUDA runtime.
#include "launch/device_choice.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/emulated_cuda.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DeviceChoiceTest : public ::testing::Test {
 protected:
  ~DeviceChoiceTest() override { machine() = {}; }

  static testing::EmulatedCuda::Machine& machine() { return testing::EmulatedCuda::Instance().machine; }

  absl::StatusOr<ChosenDevice> Choose(const char* kind, int heads = 2,
                                      TrainingPrecision precision = TrainingPrecision::kAuto) {
    const ModelPlan plan = TinyPlan({.d_model = 256, .d_ff = 16, .heads = heads});
    Collectives collectives(world_->communicator(), absl::Seconds(30));
    return ChooseDevice({.kind = kind}, plan, {.precision = precision}, *world_, collectives);
  }

 private:
  const std::unique_ptr<World> world_ = *World::Start(1);
};

TEST_F(DeviceChoiceTest, TakesAGpuWhereThereIsOne) {
  const auto chosen = Choose("auto");
  EXPECT_NE(chosen->device, nullptr);
  EXPECT_THAT(chosen->notice, StartsWith("training on Emulated GPU"));
  EXPECT_THAT(Choose("auto", 2, TrainingPrecision::kTf32)->notice, EndsWith("products in tf32"));
  EXPECT_THAT(Choose("auto", 2, TrainingPrecision::kFp32)->notice, EndsWith("products in fp32"));
}

// NCCL refuses two ranks with one GPU of one host, and takes NCCL_HOSTID for the host's name.
TEST_F(DeviceChoiceTest, ReportsWhereItsGpuIsAndWhatIsFree) {
  unsetenv("NCCL_HOSTID");
  machine() = {.devices = 2};
  const ModelPlan plan = TinyPlan({.d_model = 256, .d_ff = 16, .heads = 2});
  const DeviceFacts facts = FindDevice({}, plan, {}, /*local_rank=*/1).facts;
  EXPECT_EQ(facts.gpu, absl::StrCat("GPU 0000:11:00.0 of ", facts.host));
  EXPECT_GT(facts.free_bytes, machine().bytes / 2);
  EXPECT_LE(facts.free_bytes, machine().bytes);
  setenv("NCCL_HOSTID", "container7", /*overwrite=*/1);
  EXPECT_EQ(FindDevice({}, plan, {}, 1).facts.gpu, "GPU 0000:11:00.0 of container7");
  unsetenv("NCCL_HOSTID");
}

TEST_F(DeviceChoiceTest, AMachineWithoutADriverTrainsOnTheCpuWithoutANotice) {
  machine() = {.driver = 0};
  const auto chosen = Choose("auto");
  EXPECT_EQ(chosen->device, nullptr);
  EXPECT_EQ(chosen->notice, "");
  EXPECT_EQ(Choose("cuda").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DeviceChoiceTest, AGpuThatCannotBeUsedIsNamedWithTheReason) {
  machine() = {.devices = 0};
  EXPECT_THAT(Choose("auto")->notice, HasSubstr("on the CPU: no GPU is visible"));
  EXPECT_EQ(Choose("cuda").status().code(), absl::StatusCode::kInvalidArgument);
  machine() = {.driver = 11040};
  EXPECT_THAT(Choose("auto")->notice, HasSubstr("the driver is for CUDA 11.4"));
  machine() = {.major = 7};
  EXPECT_THAT(Choose("auto")->notice, HasSubstr("is too old"));
  machine() = {.bytes = 1000};
  EXPECT_THAT(Choose("auto")->notice, HasSubstr("out of memory"));
  machine() = {};
  EXPECT_EQ(Choose("auto", /*heads=*/1)->device, nullptr);
  EXPECT_THAT(Choose("auto", /*heads=*/1)->notice, HasSubstr("heads of 256 columns"));
  machine() = {.driver = 0};
  EXPECT_THAT(Choose("auto", 2, TrainingPrecision::kBf16).status().message(), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(Choose("cpu", 2, TrainingPrecision::kTf32).status().message(), HasSubstr("\"tf32\" needs a GPU"));
}

}  // namespace
}  // namespace hadal
