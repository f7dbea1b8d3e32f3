#include "tools/checkpoint/weights_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

absl::StatusOr<WrittenFile> WriteSlices(const WeightsCheckpoint& checkpoint, const std::string& directory) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  std::vector<float> values(static_cast<size_t>(kSliceElements));
  std::vector<SliceState> slices;  // all in the same memory, one after the other
  for (int32_t p = 0; p < static_cast<int32_t>(manifest.parameters.size()); ++p) {
    for (int64_t slice = 0; slice < manifest.parameters[p].slices(); ++slice) {
      SliceState& state = slices.emplace_back();
      state.parameter = p;
      state.slice = slice;
      state.weight = Vector(values.data(), manifest.parameters[p].slice_elements(slice));
    }
  }
  HADAL_ASSIGN_OR_RETURN(CheckpointFileWriter writer, CheckpointFileWriter::Create({.directory = directory,
                                                                                    .rank = 0,
                                                                                    .step = manifest.progress.step,
                                                                                    .plan_hash = manifest.plan_hash,
                                                                                    .parameters = &manifest.parameters},
                                                                                   slices));
  WorkProgress progress(checkpoint.what, "slices", static_cast<int64_t>(slices.size()));
  for (const SliceState& state : slices) {
    HADAL_RETURN_IF_ERROR(checkpoint.read(state));
    HADAL_RETURN_IF_ERROR(writer.Append(state));
    progress.Advance(1);
  }
  return writer.Finish();
}

absl::Status WriteInto(WeightsCheckpoint& checkpoint, const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(WrittenFile file, WriteSlices(checkpoint, directory));
  checkpoint.manifest.files = {std::move(file)};
  return CompleteCheckpointDirectory(directory, std::move(checkpoint.manifest), checkpoint.attachments);
}

}  // namespace

absl::StatusOr<StagedOutput> StageNewFolder(const std::string& folder) {
  if (PathExists(folder)) return AlreadyExistsError(folder, " already exists; remove it or choose another --out");
  return StagedOutput::Begin(folder);
}

absl::Status CheckFinite(const SliceState& state, const std::vector<CheckpointParameter>& parameters,
                         const std::string& origin) {
  const float* const begin = state.weight.data;
  const float* const end = begin + state.weight.size;
  const float* const found = std::find_if_not(begin, end, [](float x) { return std::isfinite(x); });
  if (found == end) return absl::OkStatus();
  return InvalidArgumentError(
      origin, ": ", parameters[state.parameter].name, " has ", *found, " at element ",
      state.slice * kSliceElements + (found - begin),
      "; a model with weights that are not finite computes nothing of use; to study it, give --allow-nonfinite");
}

absl::Status WriteWeightsCheckpoint(WeightsCheckpoint checkpoint, const StagedOutput& staged,
                                    const std::string& directory) {
  checkpoint.manifest.attempt = NewCheckpointAttempt();
  checkpoint.manifest.time = absl::Now();
  checkpoint.manifest.has_moments = checkpoint.manifest.muon = false;
  checkpoint.manifest.attachments.clear();
  const std::string temporary = staged.Path("checkpoint");
  HADAL_RETURN_IF_ERROR(WithPath(WriteInto(checkpoint, temporary), temporary, directory));
  return staged.Publish("checkpoint", directory);
}

}  // namespace hadal
