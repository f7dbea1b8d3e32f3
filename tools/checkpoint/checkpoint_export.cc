#include "tools/checkpoint/checkpoint_command.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/exported_tensors.h"
#include "runtime/bytes.h"
#include "runtime/files.h"
#include "runtime/safetensors.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/weights_checkpoint.h"
#include "tools/output/staged_output.h"
#include "tools/output/work_progress.h"
#include "tools/python_child.h"

namespace hadal {
namespace {

std::vector<SafetensorsTensor> Descriptions(const std::vector<ExportedTensor>& exported) {
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(exported.size());
  for (const ExportedTensor& tensor : exported) {
    tensors.push_back({.name = tensor.name, .type = SafetensorsType::kF32, .shape = tensor.shape});
  }
  return tensors;
}

// Appends the weights of one parameter, slice by slice.
absl::Status AppendParameter(CheckpointReader& reader, int32_t p, bool allow_nonfinite, SafetensorsWriter& writer) {
  const CheckpointParameter& parameter = reader.manifest().parameters[p];
  std::vector<float> values;
  for (int64_t slice = 0; slice < parameter.slices(); ++slice) {
    values.resize(static_cast<size_t>(parameter.slice_elements(slice)));
    const SliceState state = {.parameter = p, .slice = slice, .weight = {values.data(), std::ssize(values)}};
    HADAL_RETURN_IF_ERROR(reader.ReadSlices({&state, 1}));
    if (!allow_nonfinite) {
      HADAL_RETURN_IF_ERROR(CheckFinite(state, reader.manifest().parameters, reader.directory()));
    }
    HADAL_RETURN_IF_ERROR(writer.Append(AsBytes(values)));
  }
  return absl::OkStatus();
}

absl::Status WriteTensors(CheckpointReader& reader, const std::string& path, bool allow_nonfinite) {
  const std::vector<ExportedTensor> tensors = ExportedTensors(reader.manifest().parameters);
  HADAL_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                         SafetensorsWriter::Create(path, Descriptions(tensors), {{"format", "pt"}}));
  WorkProgress progress("exporting", "tensors", static_cast<int64_t>(tensors.size()));
  for (const ExportedTensor& tensor : tensors) {
    for (size_t row = 0; row < tensor.parameters.size(); ++row) {
      HADAL_RETURN_IF_ERROR(AppendParameter(reader, tensor.parameters[row], allow_nonfinite, writer));
      HADAL_RETURN_IF_ERROR(writer.Append(AsBytes(std::vector<float>(tensor.ZerosAfter(row), 0.0f))));
    }
    progress.Advance(1);
  }
  return writer.Finish().status();
}

std::string SettingsJson(const CheckpointReader& reader) {
  const CheckpointManifest& manifest = reader.manifest();
  nlohmann::ordered_json vocabularies = nlohmann::ordered_json::array();
  for (const AttachedFile& file : manifest.attachments) vocabularies.push_back(file.name);
  const std::string settings = manifest.model_settings.empty() ? "{}" : manifest.model_settings;
  nlohmann::ordered_json json = {{"model", nlohmann::ordered_json::parse(settings)},
                                 {"inputs", nlohmann::ordered_json::parse(manifest.ToString())["inputs"]},
                                 {"vocabularies", std::move(vocabularies)},
                                 {"step", manifest.progress.step},
                                 {"update", manifest.progress.growth_update()},
                                 {"config", manifest.config_text}};
  if (std::isfinite(manifest.progress.validation_nll)) json["validation_nll"] = manifest.progress.validation_nll;
  return json.dump(2) + "\n";
}

// Writes the plain files beside the folder, and lets Python convert them.
absl::Status ExportInFormat(const CheckpointExportOptions& options) {
  HADAL_RETURN_IF_ERROR(RunHadalTorch({"packages", options.format}));
  HADAL_ASSIGN_OR_RETURN(const StagedOutput staged, StageNewFolder(options.out));
  const std::string plain = staged.Path(absl::StrCat("model", kSafetensorsEnding));
  std::ostringstream unread;
  HADAL_RETURN_IF_ERROR(ExportCheckpoint(
      {.checkpoint = options.checkpoint, .out = plain, .allow_nonfinite = options.allow_nonfinite}, unread));
  std::vector<std::string> arguments = {"export", plain, "--format", options.format, "--out", options.out};
  if (!options.quantization.empty()) arguments.insert(arguments.end(), {"--quantization", options.quantization});
  if (options.allow_nonfinite) arguments.emplace_back("--allow-nonfinite");
  return RunHadalTorch(arguments);
}

}  // namespace

absl::Status ExportCheckpoint(const CheckpointExportOptions& options, std::ostream& out) {
  if (!options.format.empty()) return ExportInFormat(options);
  if (!absl::EndsWith(options.out, kSafetensorsEnding)) {
    return InvalidArgumentError("--out ", options.out, " must end in ", kSafetensorsEnding);
  }
  HADAL_ASSIGN_OR_RETURN(CheckpointReader reader, OpenBestCheckpoint(options.checkpoint));
  const std::string folder = DirectoryName(options.out);
  const std::string settings = options.out.substr(0, options.out.size() - (sizeof(kSafetensorsEnding) - 1)) + ".json";
  std::vector<std::pair<std::string, std::string>> texts = {{settings, SettingsJson(reader)}};
  for (const AttachedFile& file : reader.manifest().attachments) {
    if (absl::StartsWith(file.name, ".") ||
        !(absl::EndsWith(file.name, ".model") || absl::EndsWith(file.name, ".txt") || file.name == "tokenizer.json")) {
      return DataLossError(reader.directory(), " carries ", file.name, ", which is no vocabulary");
    }
    if (file.name == BaseName(settings)) {
      return InvalidArgumentError("--out ", options.out, ": its settings would be ", file.name,
                                  ", which is the model's vocabulary; choose another name");
    }
    HADAL_ASSIGN_OR_RETURN(std::string contents, reader.ReadAttachment(file.name));
    const std::string path = JoinPath(folder, file.name);
    if (!PathExists(path)) {
      texts.emplace_back(path, std::move(contents));
    } else if (const auto present = ReadFile(path, std::ssize(contents)); !present.ok() || *present != contents) {
      return AlreadyExistsError(
          path, " is not this model's vocabulary, and may be another export's; remove it, or choose another folder");
    }
  }
  HADAL_ASSIGN_OR_RETURN(const StagedOutput staged, StagedOutput::Begin(options.out));
  for (const std::string& path : {options.out, settings}) {
    HADAL_RETURN_IF_ERROR(CheckOutput(path, {.inputs = {}, .is_own = [](std::string_view) { return true; }}));
    if (!options.force && PathExists(path)) {
      return AlreadyExistsError(path, " already exists; remove it, choose another --out, or use --force");
    }
  }
  const std::string tensors = BaseName(options.out);
  HADAL_RETURN_IF_ERROR(
      WithPath(WriteTensors(reader, staged.Path(tensors), options.allow_nonfinite), staged.Path(tensors), options.out));
  for (const auto& [path, contents] : texts) {
    const std::string name = BaseName(path);
    HADAL_RETURN_IF_ERROR(WithPath(WriteNewFile(staged.Path(name), contents), staged.Path(name), path));
    HADAL_RETURN_IF_ERROR(staged.Publish(name, path, options.force && path == settings));
  }
  HADAL_RETURN_IF_ERROR(staged.Publish(tensors, options.out, options.force));
  out << "wrote " << options.out << "\n";
  for (const auto& [path, contents] : texts) out << "wrote " << path << "\n";
  return absl::OkStatus();
}

}  // namespace hadal
