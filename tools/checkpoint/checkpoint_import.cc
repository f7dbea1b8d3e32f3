#include "tools/checkpoint/checkpoint_command.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/exported_tensors.h"
#include "pipeline/checkpoint/model_settings.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "runtime/json_fields.h"
#include "runtime/run_directory.h"
#include "runtime/safetensors.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/weights_checkpoint.h"
#include "tools/output/staged_output.h"
#include "tools/python_child.h"

namespace hadal {
namespace {

constexpr int64_t kMostSettingsBytes = 16 << 20;  // the config is part of them
constexpr int64_t kMostVocabularyBytes = int64_t{1} << 30;

// What FILE.json says, with the vocabularies that it names.
absl::StatusOr<WeightsCheckpoint> ReadSettings(const std::string& source) {
  const std::string path = absl::StrCat(source.substr(0, source.size() - (sizeof(kSafetensorsEnding) - 1)), ".json");
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostSettingsBytes));
  HADAL_ASSIGN_OR_RETURN(const nlohmann::json json,
                         ParseStrictJson(text, {.max_bytes = kMostSettingsBytes, .max_depth = 4}, path));
  WeightsCheckpoint checkpoint;
  CheckpointManifest& manifest = checkpoint.manifest;
  absl::Status status;
  JsonFields fields(json, "", status);
  fields.Read("step", manifest.progress.step, 0);
  fields.Read("update", manifest.progress.updates_before, 0);  // an export's are those of all runs
  fields.Read("config", manifest.config_text);
  if (fields.Has("inputs")) manifest.inputs = ReadInputKind(fields.Object("inputs"));
  const nlohmann::json& names = fields.List("vocabularies");
  if (status.ok() && !fields.Has("model")) fields.Fail("model", "is missing");
  if (!status.ok()) return DataLossError(path, ": ", status.message());
  HADAL_ASSIGN_OR_RETURN(const ModelOptions options, ParseModelSettings(json["model"].dump()));
  const ModelPlan plan = ModelPlan::Make(options);
  manifest.plan_hash = plan.Hash();
  manifest.parameters = DescribeParameters(plan);
  manifest.model_settings = ModelSettingsJson(options);
  const std::string directory = DirectoryName(path);
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor opened, OpenDirectory(directory));
  for (const nlohmann::json& name : names) {
    const std::string file = name.is_string() ? name.get<std::string>() : "";
    const std::string vocabulary_path = JoinPath(directory, file);
    HADAL_ASSIGN_OR_RETURN(const FileDescriptor vocabulary_file, OpenFileIn(opened, directory, file));
    HADAL_ASSIGN_OR_RETURN(std::string contents, ReadWhole(vocabulary_file, vocabulary_path, kMostVocabularyBytes));
    HADAL_ASSIGN_OR_RETURN(const Vocabulary vocabulary, Vocabulary::Parse(contents, vocabulary_path));
    const bool of_source = absl::StartsWith(file, absl::StrCat(kSourceVocabulary, "."));
    const int32_t rows = of_source ? options.source_vocabulary : options.target_vocabulary;
    if (vocabulary.size() != rows) {
      return DataLossError(file, " has ", vocabulary.size(), " ids, the model in ", path, " ", rows);
    }
    checkpoint.attachments.push_back({.name = file, .contents = std::move(contents)});
  }
  return checkpoint;
}

// Where a parameter's elements are.
struct FirstElement {
  int32_t tensor = -1;        // of the file
  int64_t first_element = 0;  // of the tensor
};

// Finds every parameter in the file. The file has no other tensors.
absl::StatusOr<std::vector<FirstElement>> FindParameters(const SafetensorsReader& file,
                                                         const std::vector<CheckpointParameter>& parameters) {
  std::vector<FirstElement> first_elements(parameters.size());
  std::set<std::string> names;
  for (const ExportedTensor& tensor : ExportedTensors(parameters)) {
    const int32_t found = file.Find(tensor.name);
    if (found < 0) return DataLossError(file.path(), " lacks the tensor ", tensor.name);
    const SafetensorsTensor& stored = file.tensors()[found];
    if (stored.type != SafetensorsType::kF32 || stored.shape != tensor.shape) {
      return DataLossError(file.path(), ": ", tensor.name, " is ", SafetensorsTypeName(stored.type), " [",
                           absl::StrJoin(stored.shape, ", "), "], its settings give F32 [",
                           absl::StrJoin(tensor.shape, ", "), "]");
    }
    for (size_t row = 0; row < tensor.parameters.size(); ++row) {
      first_elements[tensor.parameters[row]] = {.tensor = found,
                                                .first_element = static_cast<int64_t>(row) * stored.shape.back()};
    }
    names.insert(tensor.name);
  }
  for (const SafetensorsTensor& stored : file.tensors()) {
    if (names.contains(stored.name)) continue;
    return DataLossError(file.path(), " has the tensor ", stored.name, ", which the model of its settings lacks");
  }
  return first_elements;
}

absl::Status ImportPlain(const std::string& source, const StagedOutput& staged, const std::string& directory,
                         bool allow_nonfinite) {
  HADAL_ASSIGN_OR_RETURN(WeightsCheckpoint checkpoint, ReadSettings(source));
  HADAL_ASSIGN_OR_RETURN(const SafetensorsReader file, SafetensorsReader::Open(source));
  HADAL_ASSIGN_OR_RETURN(const std::vector<FirstElement> first_elements,
                         FindParameters(file, checkpoint.manifest.parameters));
  const std::vector<CheckpointParameter> parameters = checkpoint.manifest.parameters;
  checkpoint.what = "importing";
  checkpoint.read = [&](const SliceState& state) {
    const FirstElement& first = first_elements[state.parameter];
    constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
    HADAL_RETURN_IF_ERROR(file.Read(first.tensor, (first.first_element + state.slice * kSliceElements) * kBytes,
                                    state.weight.size * kBytes, state.weight.data));
    return allow_nonfinite ? absl::OkStatus() : CheckFinite(state, parameters, source);
  };
  return WriteWeightsCheckpoint(std::move(checkpoint), staged, directory);
}

}  // namespace

absl::Status ImportCheckpoint(const CheckpointImportOptions& options, std::ostream& out) {
  if (!PathExists(options.source)) return NotFoundError(options.source, " does not exist");
  HADAL_ASSIGN_OR_RETURN(const StagedOutput staged, StageNewFolder(options.out));
  if (absl::EndsWith(options.source, kSafetensorsEnding)) {
    HADAL_RETURN_IF_ERROR(ImportPlain(options.source, staged, options.out, options.allow_nonfinite));
  } else {
    const std::string plain = staged.Path("model.safetensors");
    std::vector<std::string> arguments = {"import", options.source, "--out", plain};
    for (const std::string& dictionary : options.dictionaries) {
      arguments.insert(arguments.end(), {"--dictionary", dictionary});
    }
    if (options.allow_nonfinite) arguments.emplace_back("--allow-nonfinite");
    HADAL_RETURN_IF_ERROR(RunHadalTorch(arguments));
    absl::Status imported = ImportPlain(plain, staged, options.out, options.allow_nonfinite);
    if (absl::IsDataLoss(imported)) {  // not damage: settings that hadal does not support
      imported = InvalidArgumentError(options.source, ": ", imported.message());
    }
    HADAL_RETURN_IF_ERROR(WithPath(imported, staged.Path(""), ""));
  }
  out << "wrote " << options.out << "\n";
  return absl::OkStatus();
}

}  // namespace hadal
