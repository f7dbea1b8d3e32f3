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
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
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

}  // namespace hadal
