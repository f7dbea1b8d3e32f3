#include "pipeline/exchange/parameter_broadcast.h"

#include <algorithm>
#include <vector>

#include "layers/initialization.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status ReceiveFrom(Communicator& communicator, int peer, Vector slice, absl::Duration timeout) {
  HADAL_ASSIGN_OR_RETURN(CommRequest request,
                         communicator.Receive(slice.data, slice.size * sizeof(float), peer, kInitializationTag));
  return communicator.Wait(request, absl::Now() + timeout, "initial parameters");
}

absl::Status SendTo(Communicator& communicator, int peer, ConstVector slice, absl::Duration timeout) {
  HADAL_ASSIGN_OR_RETURN(CommRequest request,
                         communicator.Send(slice.data, slice.size * sizeof(float), peer, kInitializationTag));
  return communicator.Wait(request, absl::Now() + timeout, "initial parameters");
}

}  // namespace

absl::Status InitializeParameters(const PipelineLayout& pipeline, const ParameterStore& parameters, uint64_t seed,
                                  const Stream& stream, Communicator& communicator, absl::Duration timeout) {
  const ModelPlan& plan = parameters.plan();
  const int rank = communicator.rank();
  std::vector<float> passing;  // a slice on its way to a later rank, or to this rank's device
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    const int owner = pipeline.OwnerOf(plan, p);
    if (rank > owner) continue;
    const int64_t elements = plan.parameters[p].elements();
    for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
      const int64_t size = std::min(kSliceElements, elements - slice * kSliceElements);
      const Vector weight = rank == owner ? parameters.WeightSlice(p, slice) : Vector();
      const bool stays = !weight.empty() && stream.device() == nullptr;
      if (!stays) passing.resize(size);
      const Vector values = stays ? weight : Vector(passing.data(), size);
      if (rank == 0) {
        InitializeSlice(stream, plan, seed, p, slice, values);
      } else {
        HADAL_RETURN_IF_ERROR(ReceiveFrom(communicator, rank - 1, values, timeout));
      }
      if (!weight.empty() && !stays) stream.FromHost(weight.data, values.data, size * int64_t{sizeof(float)});
      if (rank < owner) HADAL_RETURN_IF_ERROR(SendTo(communicator, rank + 1, values, timeout));
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
