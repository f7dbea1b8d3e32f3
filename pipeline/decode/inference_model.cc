#include "pipeline/decode/inference_model.h"

#include <utility>

#include "layers/parameter_store.h"
#include "runtime/comm/collectives.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// What a batch of decoding looks like to the partition: for each source token, `beam` target rows.
BatchOptions DecodingBatch(int beam) {
  constexpr int kSourceTokens = 256;
  return {.micro_batches = 1, .source_tokens = kSourceTokens, .target_tokens = kSourceTokens * beam};
}

}  // namespace

absl::Status InferenceModel::LoadHere(int beam, const Communicator& communicator, const Stream& stream) {
  HADAL_ASSIGN_OR_RETURN(pipeline_, MakePipelineLayout(plan(), DecodingBatch(beam), {}, communicator.size(), /*rank=*/0,
                                                       {.trains = false}));
  std::vector<int32_t> sublayers;
  for (int32_t s = pipeline_.first_sublayer(communicator.rank(), 0);
       s < pipeline_.last_sublayer(communicator.rank(), 0); ++s) {
    sublayers.push_back(s);
  }
  ArenaLayout layout;
  parameters_ = std::make_unique<ParameterStore>(plan(), std::move(sublayers), Purpose::kInference, layout);
  HADAL_ASSIGN_OR_RETURN(arena_, Arena::Allocate(layout, stream.device()));
  parameters_->Bind(arena_);
  HADAL_RETURN_IF_ERROR(checkpoint_.ReadWeights(*parameters_, stream));
  if (stream.device() == nullptr) parameters_->PackWeights();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<InferenceModel>> InferenceModel::Load(ModelCheckpoint checkpoint, int beam,
                                                                     Communicator& communicator, const Stream& stream,
                                                                     absl::Duration timeout) {
  std::unique_ptr<InferenceModel> model(new InferenceModel(std::move(checkpoint)));
  HADAL_RETURN_IF_ERROR(
      Collectives(communicator, timeout).AllOk(model->LoadHere(beam, communicator, stream), "loading the checkpoint"));
  return model;
}

}  // namespace hadal
