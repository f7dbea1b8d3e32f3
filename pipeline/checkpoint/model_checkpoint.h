// A checkpoint as a model to use: everything that translation and scoring need, from the checkpoint alone.
//
// The model plan is made again from the stored settings and its hash compared with the stored one; weights are read by
// each rank for the sublayers it holds, tied tables included, so nothing is sent. Vocabularies are the attachments
// "vocabulary.<ext>" (shared) or "source.vocabulary.<ext>" and "target.vocabulary.<ext>".
// Thread safety: one thread. Blocking: reads files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

class ModelCheckpoint {
 public:
  // `path`: a checkpoint, or a run directory: then the best checkpoint by validation, or else the newest good one.
  // Errors: NotFound, DataLoss; FailedPrecondition when this version would build another model than the one saved.
  static absl::StatusOr<ModelCheckpoint> Open(const std::string& path);

  const std::string& directory() const { return reader_.directory(); }
  const ModelPlan& plan() const { return *plan_; }
  const TrainingProgress& progress() const { return reader_.manifest().progress; }
  const std::string& config_text() const { return reader_.manifest().config_text; }  // the run's, resolved
  const Vocabulary& source_vocabulary() const { return source_; }  // the target's where the model has no encoder
  const Vocabulary& target_vocabulary() const { return target_; }

  // Fills every weight that `parameters` (of this plan, in the memory of `stream`) holds.  Errors: DataLoss.
  absl::Status ReadWeights(const ParameterStore& parameters, const Stream& stream);

 private:
  ModelCheckpoint(CheckpointReader reader, std::unique_ptr<const ModelPlan> plan, Vocabulary source, Vocabulary target);

  CheckpointReader reader_;
  std::unique_ptr<const ModelPlan> plan_;  // by pointer: stores and decoders refer to it
  Vocabulary source_, target_;
};

}  // namespace hadal
