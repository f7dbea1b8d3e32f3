#include "pipeline/checkpoint/checkpoint_file.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {

CheckpointFileWriter::CheckpointFileWriter(SafetensorsWriter writer, const CheckpointFileOptions& options,
                                           std::span<const SliceState> slices)
    : writer_(std::move(writer)), parameters_(options.parameters) {
  file_.name = RankFileName(options.rank);
  for (const SliceState& slice : slices) {
    WrittenSlice& written = file_.slices.emplace_back();
    written.parameter = slice.parameter;
    written.slice = slice.slice;
    for (const StateKind kind : kStateKinds) {
      if (!slice.view(kind).empty()) written.crc32c[static_cast<size_t>(kind)] = 0;
    }
  }
}

absl::StatusOr<CheckpointFileWriter> CheckpointFileWriter::Create(const CheckpointFileOptions& options,
                                                                  std::span<const SliceState> slices) {
  std::vector<SafetensorsTensor> tensors;
  for (const SliceState& slice : slices) {
    const CheckpointParameter& parameter = options.parameters->at(static_cast<size_t>(slice.parameter));
    for (const StateKind kind : kStateKinds) {
      if (slice.view(kind).empty()) continue;
      tensors.push_back({.name = StateKey(kind, parameter.name, slice.slice),
                         .type = SafetensorsType::kF32,
                         .shape = {parameter.slice_elements(slice.slice)}});
    }
  }
  const SafetensorsMetadata metadata = {{"format", absl::StrCat("hadal checkpoint ", kCheckpointFormat)},
                                        {"plan_hash", absl::StrFormat("%016x", options.plan_hash)},
                                        {"rank", absl::StrCat(options.rank)},
                                        {"step", absl::StrCat(options.step)}};
  HADAL_RETURN_IF_ERROR(MakeDirectories(options.directory));
  HADAL_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(JoinPath(options.directory, RankFileName(options.rank)), std::move(tensors), metadata));
  return CheckpointFileWriter(std::move(writer), options, slices);
}

absl::Status CheckpointFileWriter::Append(const SliceState& slice) {
  HADAL_CHECK_LT(appended_, file_.slices.size());
  const WrittenSlice& announced = file_.slices[appended_];
  HADAL_CHECK_EQ(slice.parameter, announced.parameter);
  HADAL_CHECK_EQ(slice.slice, announced.slice);
  for (const StateKind kind : kStateKinds) {
    const Vector& values = slice.view(kind);
    HADAL_CHECK_EQ(!values.empty(), announced.crc32c[static_cast<size_t>(kind)].has_value());
    if (values.empty()) continue;
    HADAL_CHECK_EQ(values.size, parameters_->at(static_cast<size_t>(slice.parameter)).slice_elements(slice.slice));
    HADAL_RETURN_IF_ERROR(
        writer_.Append({reinterpret_cast<const char*>(values.data), static_cast<size_t>(values.size) * sizeof(float)}));
  }
  ++appended_;
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> CheckpointFileWriter::Finish() {
  HADAL_CHECK_EQ(appended_, file_.slices.size());
  HADAL_ASSIGN_OR_RETURN(const SafetensorsSummary summary, writer_.Finish());
  file_.bytes = summary.bytes;
  file_.crc32c = summary.crc32c;
  file_.header_bytes = summary.header_bytes;
  file_.header_crc32c = summary.header_crc32c;
  size_t tensor = 0;
  for (WrittenSlice& slice : file_.slices) {
    for (std::optional<uint32_t>& crc : slice.crc32c) {
      if (crc) crc = summary.tensor_crc32c[tensor++];
    }
  }
  return std::move(file_);
}

}  // namespace hadal
