// InferenceModel holds this rank's part of a checkpoint for inference over a pipeline of ranks: weights, without
// gradients or moments.
//
// The model is partitioned by the cost of decoding: the encoder runs once per sentence, the decoder for every
// hypothesis at every position. Thread safety: read-only after Load. Blocking: Load, a collective call.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class InferenceModel {
 public:
  // Loads the model. `beam`: hypotheses per sentence, for the cost estimate. `stream`: the weights are stored in its
  // device's memory.
  // Errors: those of reading weights and of MakePipelineLayout; ResourceExhausted. All ranks return any rank's error.
  static absl::StatusOr<std::unique_ptr<InferenceModel>> Load(ModelCheckpoint checkpoint, int beam,
                                                              Communicator& communicator, const Stream& stream,
                                                              absl::Duration timeout);

  const ModelCheckpoint& checkpoint() const { return checkpoint_; }
  const ModelPlan& plan() const { return checkpoint_.plan(); }
  const PipelineLayout& pipeline() const { return pipeline_; }
  const ParameterStore& parameters() const { return *parameters_; }
  int64_t bytes() const { return arena_.bytes(); }  // of this rank's weights

 private:
  explicit InferenceModel(ModelCheckpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  absl::Status LoadHere(int beam, const Communicator& communicator, const Stream& stream);

  ModelCheckpoint checkpoint_;
  PipelineLayout pipeline_;
  std::unique_ptr<ParameterStore> parameters_;
  Arena arena_;
};

}  // namespace hadal
