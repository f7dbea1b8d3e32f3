#include "pipeline/checkpoint/model_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/model_settings.h"
#include "pipeline/checkpoint/vocabulary_growth.h"
#include "runtime/comm/collectives.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// What a batch of decoding looks like to the partition: for each source token, `beam` target rows.
BatchOptions DecodingBatch(int beam) {
  constexpr int kSourceTokens = 256;
  return {.micro_batches = 1, .source_tokens = kSourceTokens, .target_tokens = kSourceTokens * beam};
}

absl::StatusOr<Vocabulary> ReadVocabulary(CheckpointReader& reader, const std::string& stem, int32_t expected_size) {
  const AttachedFile* const file = VocabularyFile(reader.manifest(), stem);
  if (file == nullptr) {
    return NotFoundError(reader.directory(), " carries neither ", stem, ".* nor ", kSharedVocabulary,
                         ".*: text cannot be turned into its tokens");
  }
  const std::string path = JoinPath(reader.directory(), file->name);
  HADAL_ASSIGN_OR_RETURN(std::string contents, reader.ReadAttachment(file->name));
  HADAL_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Parse(std::move(contents), path));
  if (vocabulary.size() != expected_size) {
    return DataLossError(path, " has ", vocabulary.size(), " ids, the model ", expected_size);
  }
  return vocabulary;
}

}  // namespace

absl::Status InferenceModel::LoadHere(int beam, const Communicator& communicator, const Stream& stream) {
  HADAL_ASSIGN_OR_RETURN(pipeline_, MakePipelineLayout(plan(), DecodingBatch(beam), {}, communicator.size(), /*rank=*/0,
                                                       {.trains = false}));
  ArenaLayout layout;
  parameters_ =
      std::make_unique<ParameterStore>(plan(), pipeline_.SublayersOf(communicator.rank()), Purpose::kInference, layout);
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

ModelCheckpoint::ModelCheckpoint(CheckpointReader reader, std::unique_ptr<const ModelPlan> plan, Vocabulary source,
                                 Vocabulary target)
    : reader_(std::move(reader)),
      inputs_(reader_.manifest().inputs),
      plan_(std::move(plan)),
      source_(std::move(source)),
      target_(std::move(target)) {
  inputs_.frame_width = plan_->options.frame_width;
}

absl::StatusOr<ModelCheckpoint> ModelCheckpoint::Open(const std::string& path) {
  absl::StatusOr<CheckpointReader> reader = OpenBestCheckpoint(path);
  if (!reader.ok()) return AdviseAnotherCheckpoint(reader.status());
  absl::StatusOr<ModelCheckpoint> checkpoint = Read(*std::move(reader));
  if (!checkpoint.ok()) return AdviseAnotherCheckpoint(checkpoint.status());
  return checkpoint;
}

absl::StatusOr<ModelCheckpoint> ModelCheckpoint::Read(CheckpointReader reader) {
  HADAL_ASSIGN_OR_RETURN(ModelPlan rebuilt, PlanOfCheckpoint(reader.manifest(), reader.directory()));
  auto plan = std::make_unique<const ModelPlan>(std::move(rebuilt));
  HADAL_ASSIGN_OR_RETURN(Vocabulary target, ReadVocabulary(reader, kTargetVocabulary, plan->options.target_vocabulary));
  Vocabulary source = target;
  if (plan->options.source_vocabulary > 0) {
    HADAL_ASSIGN_OR_RETURN(source, ReadVocabulary(reader, kSourceVocabulary, plan->options.source_vocabulary));
  }
  return ModelCheckpoint(std::move(reader), std::move(plan), std::move(source), std::move(target));
}

absl::Status ModelCheckpoint::CheckDecodes() const {
  if (plan_->options.has_decoder()) return absl::OkStatus();
  return InvalidArgumentError(directory(),
                              " is an encoder alone (decoder_layers = 0): it predicts masked tokens and has no decoder "
                              "to write or score text. `hadal embed` writes its sentence vectors.");
}

absl::Status ModelCheckpoint::ReadWeights(const ParameterStore& parameters, const Stream& stream) {
  HADAL_CHECK_EQ(&parameters.plan(), plan_.get());
  std::vector<SliceState> slices;
  for (int32_t p = 0; p < static_cast<int32_t>(plan_->parameters.size()); ++p) {
    if (!parameters.Holds(p)) continue;
    const Vector weight = parameters.WeightVector(p);
    for (int64_t first = 0; first < weight.size; first += kSliceElements) {
      SliceState& slice = slices.emplace_back();
      slice.parameter = p;
      slice.slice = first / kSliceElements;
      slice.weight = {weight.data + first, std::min(kSliceElements, weight.size - first)};
    }
  }
  return AdviseAnotherCheckpoint(reader_.ReadSlices(slices, stream.device()));
}

}  // namespace hadal
