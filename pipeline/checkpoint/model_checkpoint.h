// ModelCheckpoint opens a checkpoint for inference. The checkpoint contains everything that translation and scoring
// need; no config or corpus is read.
//
// It rebuilds the model plan from the stored settings and compares its hash with the stored one. Each rank reads the
// weights of the sublayers it holds, tied tables included, so nothing is sent. Vocabularies are the attachments
// "vocabulary.<ext>" (shared) or "source.vocabulary.<ext>" and "target.vocabulary.<ext>".
// Thread safety: one thread. Blocking: reads files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/input_kind.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

class ModelCheckpoint {
 public:
  // `path`: a checkpoint, or a run directory: its best checkpoint by validation, else the newest valid one.
  // Errors: NotFound, DataLoss; FailedPrecondition if this version of hadal would build another model.
  static absl::StatusOr<ModelCheckpoint> Open(const std::string& path);

  const CheckpointReader& reader() const { return reader_; }
  const std::string& directory() const { return reader_.directory(); }
  const ModelPlan& plan() const { return *plan_; }
  const TrainingProgress& progress() const { return reader_.manifest().progress; }
  // How its training text and features were made. Of older checkpoints only the width of frames is known.
  const InputKind& inputs() const { return inputs_; }
  const std::string& config_text() const { return reader_.manifest().config_text; }  // the run's, resolved
  const Vocabulary& source_vocabulary() const { return source_; }                    // the target's without one
  const Vocabulary& target_vocabulary() const { return target_; }

  // Errors: InvalidArgument if it is an encoder alone, which neither translates nor scores text.
  absl::Status CheckDecodes() const;
  // Reads all weights that `parameters` stores. REQUIRES: made for plan(), in the memory of `stream`. Errors: DataLoss.
  absl::Status ReadWeights(const ParameterStore& parameters, const Stream& stream);

 private:
  static absl::StatusOr<ModelCheckpoint> Read(CheckpointReader reader);
  ModelCheckpoint(CheckpointReader reader, std::unique_ptr<const ModelPlan> plan, Vocabulary source, Vocabulary target);

  CheckpointReader reader_;
  InputKind inputs_;
  std::unique_ptr<const ModelPlan> plan_;  // a pointer, because stores and decoders refer to it
  Vocabulary source_, target_;
};

// InferenceModel holds this rank's part of a checkpoint for inference over a pipeline of ranks: weights, without
// gradients or moments.
//
// The model is partitioned by the cost of decoding: the encoder runs once per sentence, the decoder for every
// hypothesis at every position. Thread safety: read-only after Load. Blocking: Load, a collective call.
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
