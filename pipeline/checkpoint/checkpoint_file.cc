#include "pipeline/checkpoint/checkpoint_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {

std::string RankFileName(int rank) { return absl::StrFormat("rank_%05d.safetensors", rank); }

CheckpointFileWriter::CheckpointFileWriter(SafetensorsWriter writer, const Options& options,
                                           const std::vector<Entry>& entries)
    : writer_(std::move(writer)), parameters_(options.parameters) {
  file_.name = RankFileName(options.rank);
  for (const Entry& entry : entries) {
    file_.slices.push_back({.parameter = entry.parameter, .slice = entry.slice, .crc32c = {}});
    kinds_.push_back(entry.kinds);
  }
}

absl::StatusOr<CheckpointFileWriter> CheckpointFileWriter::Create(const Options& options,
                                                                  const std::vector<Entry>& entries) {
  std::vector<SafetensorsTensor> tensors;
  for (const Entry& entry : entries) {
    const CheckpointParameter& parameter = options.parameters->at(static_cast<size_t>(entry.parameter));
    for (const StateKind kind : kStateKinds) {
      if (!entry.kinds[static_cast<size_t>(kind)]) continue;
      tensors.push_back({.name = StateKey(kind, parameter.name, entry.slice),
                         .type = SafetensorsType::kF32,
                         .shape = {parameter.slice_elements(entry.slice)}});
    }
  }
  const SafetensorsMetadata metadata = {{"format", absl::StrCat("hadal checkpoint ", kCheckpointFormat)},
                                        {"plan_hash", absl::StrFormat("%016x", options.plan_hash)},
                                        {"rank", absl::StrCat(options.rank)},
                                        {"step", absl::StrCat(options.step)}};
  HADAL_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(JoinPath(options.directory, RankFileName(options.rank)), std::move(tensors), metadata));
  return CheckpointFileWriter(std::move(writer), options, entries);
}

absl::Status CheckpointFileWriter::Append(const SliceState& state) {
  HADAL_CHECK_LT(appended_, file_.slices.size());
  const WrittenSlice& announced = file_.slices[appended_];
  HADAL_CHECK_EQ(state.parameter, announced.parameter);
  HADAL_CHECK_EQ(state.slice, announced.slice);
  for (const StateKind kind : kStateKinds) {
    const Vector& values = state.view(kind);
    HADAL_CHECK_EQ(!values.empty(), kinds_[appended_][static_cast<size_t>(kind)]);
    if (values.empty()) continue;
    HADAL_CHECK_EQ(values.size, parameters_->at(static_cast<size_t>(state.parameter)).slice_elements(state.slice));
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
  for (size_t i = 0; i < file_.slices.size(); ++i) {
    for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
      if (kinds_[i][kind]) file_.slices[i].crc32c[kind] = summary.tensor_crc32c[tensor++];
    }
  }
  return std::move(file_);
}

absl::Status CompleteCheckpointDirectory(const std::string& directory, CheckpointManifest manifest,
                                         const std::vector<Attachment>& attachments) {
  for (const Attachment& attachment : attachments) {
    HADAL_CHECK(IsPlainFileName(attachment.name));
    HADAL_RETURN_IF_ERROR(WriteNewFile(JoinPath(directory, attachment.name), attachment.contents));
    manifest.attachments.push_back({.name = attachment.name,
                                    .bytes = static_cast<int64_t>(attachment.contents.size()),
                                    .crc32c = Crc32c(attachment.contents.data(), attachment.contents.size())});
  }
  HADAL_RETURN_IF_ERROR(WriteNewFile(JoinPath(directory, kManifestName), manifest.ToString()));
  // Opened as a reader would: what cannot be loaded is never committed.
  if (absl::Status status = CheckpointReader::Open(directory).status(); !status.ok()) {
    return absl::InternalError(absl::StrCat("what was written makes no checkpoint: ", status.message(),
                                            "; is the run directory on a file system that all ranks share?"));
  }
  return SyncDirectory(directory);
}

}  // namespace hadal
