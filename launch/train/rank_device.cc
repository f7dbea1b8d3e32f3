#include "launch/train/rank_device.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launch/job/memory_limit.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/exchange/transfer_pairs.h"
#include "pipeline/plan/relu_masks.h"
#include "runtime/host_memory.h"
#include "runtime/status_macros.h"

namespace hadal {

absl::StatusOr<bool> AgreeOnReluMasks(const ModelPlan& plan, const BatchOptions& batch, const PipelineOptions& options,
                                      const Stream& stream, Collectives& collectives) {
  if (stream.device() == nullptr || plan.compute_storage != Storage::kBFloat16) return plan.relu_masks;
  const bool mine = HasReluMasks(plan, CapacityOf(plan.options, batch), options.bucket_rows, stream);
  std::string word = mine ? "yes" : "no";
  HADAL_RETURN_IF_ERROR(collectives.Broadcast(word, 0, "whether ReLUs have masks"));
  return word == "yes";
}

absl::StatusOr<int64_t> AgreeOnMemoryLimit(const ModelPlan& plan, const BatchOptions& batch,
                                           const PipelineOptions& options, bool device_transfers, const World& world,
                                           const Device* device, Collectives& collectives) {
  if (options.memory_limit_bytes != 0) return options.memory_limit_bytes;
  int64_t driver_bytes = 0;
  if (device != nullptr) {
    HADAL_ASSIGN_OR_RETURN(const PipelinePlan pipeline, MakePipelinePlan(plan, batch, options, world.size(), /*rank=*/0,
                                                                         {.device_transfers = device_transfers}));
    driver_bytes = DriverBytes(plan, pipeline);
  }
  const int64_t free =
      device != nullptr ? device->FreeBytes() : AvailableHostMemoryBytes().value_or(MemoryFacts::kUnknown);
  const double mine[] = {static_cast<double>(free), static_cast<double>(world.ranks_on_host())};
  const std::string place = device != nullptr ? device->Identity() : "";
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives.AllGather(mine, "free memory"));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> places, collectives.AllGather(place, "devices"));
  std::vector<MemoryFacts> facts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    facts.push_back({.device = places[rank],
                     .free_bytes = static_cast<int64_t>(all[rank][0]),
                     .ranks_on_host = static_cast<int>(all[rank][1])});
  }
  if (const std::string nothing = NothingIsLeft(facts, driver_bytes); !nothing.empty()) {
    return absl::ResourceExhaustedError(nothing);
  }
  return MemoryLimitBytes(facts, driver_bytes);
}

std::string MoreStreamsThanQueues(int links) {
  constexpr int kQueues = 32;       // CUDA_DEVICE_MAX_CONNECTIONS, as mpi_environment.cc sets it: the most there is
  constexpr int kOtherStreams = 2;  // the main order, and that of the replicas' sums
  const int streams = links * NcclLink::kStreams + kOtherStreams;
  if (streams <= kQueues) return "";
  return absl::StrCat("a rank's ", links, " NCCL links and its own work take ", streams,
                      " CUDA streams, and a GPU has ", kQueues,
                      " hardware queues: messages of different links may have to wait for each other, which "
                      "nobody has tried. If the run hangs, pipeline.transport = \"host\" does without NCCL");
}

absl::StatusOr<std::string> ConnectDevices(const ModelPlan& plan, const PipelinePlan& pipeline, World& world,
                                           absl::Duration timeout, RankDevice& device) {
  if (device.transport.nccl == nullptr) return std::string();
  const int64_t free_before = device.chosen.device->FreeBytes();
  const std::vector<RankPair> pairs = TransferPairs(plan, pipeline);
  HADAL_ASSIGN_OR_RETURN(
      device.device_communicator,
      NcclCommunicator::Create(*device.transport.nccl, *device.chosen.device, world.communicator(), pairs, timeout));
  const int links = MostLinks(pairs);
  const std::string took_more = NcclTookMore(free_before - device.chosen.device->FreeBytes(), links, world.rank());
  const std::string streams = world.rank() == 0 ? MoreStreamsThanQueues(links) : "";
  return absl::StrCat(took_more, took_more.empty() || streams.empty() ? "" : "; ", streams);
}

}  // namespace hadal
