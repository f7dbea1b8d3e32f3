// What `hadal plan --device cuda` states of a rank's memory is what the rank allocates on its device, to the byte.

#include "gmock/gmock.h"
#include "kernels/cuda_host/driver_memory.h"
#include "kernels/cuda_host/own_memory.h"
#include "launch/memory_limit.h"
#include "layers/method_presets.h"
#include "layers/parameter_store.h"
#include "nlohmann/json.hpp"
#include "pipeline/decode/decoder.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/layout/relu_masks.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/emulated_device.h"
#include "tests/support/small_model.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/training_engine.h"
#include "tools/plan/plan_report.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions SmallRun(int replicas, int recompute_every) {
  TrainOptions options;
  options.model =
      TinyModel({.encoder_layers = 2, .decoder_layers = 2, .d_model = 32, .d_ff = 64, .heads = 2, .vocabulary = 100});
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options.model);
  options.batch = {.micro_batches = 4, .source_tokens = 48, .target_tokens = 64};
  options.pipeline.replicas = replicas;
  options.pipeline.recompute_every = recompute_every;
  return options;
}

const Stream kPlanned = Stream::ForLayouts(DeviceKind::kCuda, 1);

TEST(DevicePlanTest, BytesAreWhatEveryRankAllocates) {
  struct Case {
    int replicas = 1;
    bool speech = false;
    ResidualMethod method = ResidualMethod::kDeepNorm;
    Block block;
  };
  for (const auto& [replicas, speech, method, block] :
       {Case{}, {2}, {1, true}, {1, false, ResidualMethod::kMhc}, {1, false, ResidualMethod::kPreLn, kModernBlock}}) {
    TrainOptions options = SmallRun(replicas, /*recompute_every=*/2 * (replicas - 1));
    ApplyResidualMethod(method, options.model);
    options.model.block = block;
    options.pipeline.transport = Transport::kHost;
    options.pipeline.overlap_weight_gradients = replicas > 1;
    if (speech) options.model.source_vocabulary = 0, options.model.frame_width = options.model.front_end_channels = 40;
    const int ranks = 2 * replicas;
    const auto report = MakePlanReport(options, ranks, kPlanned, MachineRate());
    const nlohmann::json json = nlohmann::json::parse(PlanToJson(*report, {}));
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      EmulatedDevice device;
      HADAL_ASSIGN_OR_RETURN(
          const PipelineLayout pipeline,
          MakePipelineLayout(report->model, options.batch, options.pipeline, ranks, communicator.rank()));
      HADAL_ASSIGN_OR_RETURN(const auto engine,
                             TrainingEngine(report->model, pipeline, communicator, Stream::On(device, 1)));
      EXPECT_EQ(json["memory"][communicator.rank()]["device_bytes"], device.used_bytes());
      EXPECT_EQ(json["memory"][communicator.rank()]["pinned_host_bytes"], device.used_host_bytes());
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Where validations translate, beam search's memory is a part of the arena, over training's.
TEST(DevicePlanTest, BytesOfARunThatTranslatesAreWhatEveryRankAllocates) {
  TrainOptions options = SmallRun(1, 0);
  options.pipeline.transport = Transport::kHost;
  const auto without = MakePlanReport(options, 2, kPlanned, MachineRate());
  options.pipeline.decoder = {.beam = {.beam = 2, .max_length_b = 4}, .sentences = 4};
  const auto report = MakePlanReport(options, 2, kPlanned, MachineRate());
  ASSERT_TRUE(without.ok() && report.ok());
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(*report, {}));
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    EXPECT_GE(report->layouts[rank].device_bytes(), without->layouts[rank].device_bytes());
    EXPECT_GT(report->layouts[rank].overlaid_bytes(), 0);
    EmulatedDevice device;
    HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                           MakePipelineLayout(report->model, options.batch, options.pipeline, 2, rank));
    HADAL_ASSIGN_OR_RETURN(const auto engine,
                           TrainingEngine(report->model, pipeline, communicator, Stream::On(device, 1)));
    HADAL_RETURN_IF_ERROR(engine->DistributeWeights());
    const std::unique_ptr<Decoder> decoder =
        Decoder::Over(report->model, engine->stage().parameters(), engine->stage().stream(), communicator,
                      *engine->decoder(), absl::Seconds(20));
    const std::vector<std::vector<int32_t>> sources = {{5, 6}, {7}};
    HADAL_RETURN_IF_ERROR(decoder->Translate(sources, 1).status());
    EXPECT_EQ(json["memory"][rank]["device_bytes"], device.used_bytes());
    EXPECT_EQ(json["memory"][rank]["pinned_host_bytes"], device.used_host_bytes());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A bit for each element of the hidden layer, where the products can keep it.
TEST(DevicePlanTest, TheMaskOfTheReluIsPlanned) {
  TrainOptions options = SmallRun(1, 0);
  const int64_t mask_bytes = 16 * int64_t{2 * 48 + 2 * 64} * options.batch.micro_batches;  // 64 bits in rows of 128
  for (const auto& [precision, most] :
       {std::pair(TrainingPrecision::kBf16, mask_bytes), {TrainingPrecision::kFp32, 0}}) {
    options.precision = precision;
    const auto bytes = [&](double activation_dropout) {
      options.model.activation_dropout = activation_dropout;
      const auto report = MakePlanReport(options, 1, kPlanned, MachineRate());
      return report->layouts[0].device_bytes();
    };
    const int64_t more = bytes(0) - bytes(0.1);
    EXPECT_LE(more, most);
    EXPECT_GE(more, most / options.batch.micro_batches) << "one in flight at least";
  }
}

// The plan takes the masks for granted and says what they take; a run asks its device first, and has no more than that
// has products for.
TEST(DevicePlanTest, MasksThatTheDeviceDoesNotHaveTakeNoMemory) {
  TrainOptions options = SmallRun(1, 0);
  const auto report = MakePlanReport(options, 1, kPlanned, MachineRate());
  EXPECT_GT(report->relu_mask_bytes, 0);
  EXPECT_THAT(PlanToText(*report, {}), HasSubstr("ReLU masks: up to "));
  const nlohmann::json json = nlohmann::json::parse(PlanToJson(*report, {}));
  EXPECT_EQ(json["relu_mask_bytes"], report->relu_mask_bytes);
  InProcessWorld world(1);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    for (const bool has_masks : {true, false}) {
      EmulatedDevice device;
      if (!has_masks) device.RefuseEpilogues();
      const Stream stream = Stream::On(device, 1);
      ModelPlan plan = report->model;
      const ActivationCapacity& capacity = report->pipeline.capacity;
      plan.relu_masks = HasReluMasks(plan, capacity, report->pipeline.bucket_rows, stream);
      EXPECT_EQ(plan.relu_masks, has_masks);
      HADAL_ASSIGN_OR_RETURN(const auto engine, TrainingEngine(plan, report->pipeline, communicator, stream));
      const int64_t planned = json["memory"][0]["device_bytes"];
      EXPECT_EQ(device.used_bytes(), has_masks ? planned : planned - report->relu_mask_bytes);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  options.precision = TrainingPrecision::kFp32;
  const auto fp32 = MakePlanReport(options, 1, kPlanned, MachineRate());
  EXPECT_EQ(fp32->relu_mask_bytes, 0);
  EXPECT_THAT(PlanToText(*fp32, {}), Not(HasSubstr("ReLU masks")));
}

TEST(DevicePlanTest, TheLimitIsTheDevices) {
  TrainOptions options = SmallRun(1, 0);
  const auto free = MakePlanReport(options, 1, kPlanned, MachineRate());
  options.pipeline.memory_limit_bytes = LimitedBytes(free->layouts[0], DeviceKind::kCuda);
  EXPECT_GT(options.pipeline.memory_limit_bytes, cuda::OwnMemory::kDeviceBytes);
  EXPECT_TRUE(MakePlanReport(options, 1, kPlanned, MachineRate()).ok());
  --options.pipeline.memory_limit_bytes;
  const absl::Status refused = MakePlanReport(options, 1, kPlanned, MachineRate()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("rank 0"), HasSubstr("GPU"), HasSubstr("which fits")));
}

// The sum of what the plan states and what a run leaves free is what a GPU must have: so many bytes free, and the run
// fits; one less, and it does not.
TEST(DevicePlanTest, AGpuWithWhatThePlanWantsHoldsTheRunAndNoSmallerOne) {
  for (const int sharing : {1, 2}) {
    TrainOptions options = SmallRun(1, 0);
    if (sharing > 1) options.pipeline.transport = Transport::kHost;
    const auto report = MakePlanReport(options, 2, kPlanned, MachineRate());
    const nlohmann::json json = nlohmann::json::parse(PlanToJson(*report, {}));
    int64_t wanted = 0;
    for (const auto& rank : json["memory"]) {
      wanted = std::max(wanted, rank["device_bytes"].get<int64_t>() + rank["driver_bytes"].get<int64_t>());
    }
    const auto fits = [&](int64_t bytes_a_rank) {  // before the ranks have opened their devices
      const int64_t free = sharing * (bytes_a_rank - cuda::OwnMemory::kDeviceBytes);
      const std::vector<MemoryFacts> ranks = {{"GPU-a", free, 2}, {sharing > 1 ? "GPU-a" : "GPU-b", free, 2}};
      const RankResources resources{
          .device_transfers = report->pipeline.device_transfers,
          .memory_limit_bytes = MemoryLimitBytes(ranks, DriverBytes(report->model, report->pipeline))};
      return MakeFittingLayout(report->model, options.batch, options.pipeline, 2, /*rank=*/0, resources, kPlanned).ok();
    };
    EXPECT_TRUE(fits(wanted));
    EXPECT_FALSE(fits(wanted - 1));
  }
}

// What ranks exchange lies on the device unless it goes through the host; NCCL's links are left room.
TEST(DevicePlanTest, NcclTakesMemoryOfTheDeviceInsteadOfTheHosts) {
  TrainOptions options = SmallRun(2, 0);
  const auto nccl = MakePlanReport(options, 4, kPlanned, MachineRate());
  options.pipeline.transport = Transport::kHost;
  const auto host = MakePlanReport(options, 4, kPlanned, MachineRate());
  ASSERT_TRUE(nccl.ok() && host.ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GT(nccl->layouts[rank].device_bytes(), host->layouts[rank].device_bytes());
    EXPECT_LT(nccl->layouts[rank].host_bytes(), host->layouts[rank].host_bytes());
  }
  EXPECT_EQ(NcclConnections(nccl->model, nccl->pipeline), 4) << "a neighbour and a replica, both ways";
  EXPECT_EQ(NcclConnections(host->model, host->pipeline), 0);
  EXPECT_EQ(DriverBytes(nccl->model, nccl->pipeline) - DriverBytes(host->model, host->pipeline),
            cuda::DriverMemory::NcclBytes(4));
  EXPECT_THAT(PlanToText(*nccl, {}), HasSubstr("NCCL with 4 connections 448.0 MiB"));
  EXPECT_THAT(PlanToText(*host, {}), Not(HasSubstr("NCCL")));
}

TEST(DevicePlanTest, TimesAreStatedOnlyWhereASpeedIs) {
  const auto unknown = MakePlanReport(SmallRun(1, 0), 2, kPlanned, MachineRate());
  EXPECT_THAT(PlanToText(*unknown, {}), AllOf(HasSubstr("not predicted"), HasSubstr("cuBLASLt's workspace 32.0 MiB")));
  EXPECT_TRUE(nlohmann::json::parse(PlanToJson(*unknown, {}))["step_seconds"].is_null());
  const auto given = MakePlanReport(SmallRun(1, 0), 2, kPlanned, {.gflops = 100, .adam_elements_per_second = 1e9});
  EXPECT_GT(nlohmann::json::parse(PlanToJson(*given, {}))["step_seconds"], 0.0);
  EXPECT_THAT(PlanToText(*given, {}), ContainsRegex(", 0\\.1[0-9]+ model TFLOP/s; ")) << "of two ranks' 0.2";
}

}  // namespace
}  // namespace hadal::testing
