// The suspicious half of the manifest: text to values.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/strict_json.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

constexpr StrictJsonLimits kLimits = {.max_bytes = kMaxManifestBytes, .max_depth = 5};
constexpr int64_t kMaxParameterElements = int64_t{1} << 50;

absl::Status Damaged(const std::string& what) { return absl::DataLossError(absl::StrCat("manifest: ", what)); }

// A field's value, or nothing when it has another type, sign or range.
template <typename T>
std::optional<T> As(const Json& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (value.is_string()) return value.get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (value.is_boolean()) return value.get<bool>();
  } else if constexpr (std::is_same_v<T, double>) {
    if (value.is_number()) return value.get<double>();
    if (value.is_null()) return std::numeric_limits<double>::infinity();
  } else {
    if (value.is_number_unsigned() && std::in_range<T>(value.get<uint64_t>()))
      return static_cast<T>(value.get<uint64_t>());
    if (value.is_number_integer() && std::in_range<T>(value.get<int64_t>()) && !value.is_number_unsigned()) {
      return static_cast<T>(value.get<int64_t>());
    }
  }
  return std::nullopt;
}

template <typename T>
absl::Status Take(const Json& object, const char* key, T& field) {
  const auto found = object.find(key);
  if (found == object.end()) return Damaged(absl::StrCat("\"", key, "\" is missing"));
  std::optional<T> value = As<T>(*found);
  if (!value) return Damaged(absl::StrCat("\"", key, "\" has a value of the wrong type or range"));
  field = *std::move(value);
  return absl::OkStatus();
}

absl::StatusOr<const Json*> TakeList(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return Damaged(absl::StrCat("\"", key, "\" is not a list"));
  return &*found;
}

// [order, epoch, first micro-batch]; checkpoints of before have none.
absl::StatusOr<EpochStart> ParseEpochStart(const Json& progress) {
  const auto found = progress.find("epoch_start");
  if (found == progress.end()) return EpochStart();
  if (found->is_array() && found->size() == 3) {
    const auto order = As<uint32_t>((*found)[0]);
    const auto epoch = As<int64_t>((*found)[1]);
    const auto micro_batch = As<int64_t>((*found)[2]);
    if (order && epoch && micro_batch && *epoch >= 0 && *micro_batch >= *epoch) {
      return EpochStart{.order = *order, .epoch = *epoch, .micro_batch = *micro_batch};
    }
  }
  return Damaged("\"epoch_start\" is not [order, epoch, micro-batch]");
}

absl::StatusOr<TrainingProgress> ParseProgress(const Json& root) {
  const auto found = root.find("progress");
  if (found == root.end() || !found->is_object()) return Damaged("\"progress\" is missing");
  const Json& json = *found;
  TrainingProgress progress;
  HADAL_RETURN_IF_ERROR(Take(json, "step", progress.step));
  HADAL_RETURN_IF_ERROR(Take(json, "update", progress.update));
  HADAL_RETURN_IF_ERROR(Take(json, "seed", progress.seed));
  HADAL_RETURN_IF_ERROR(Take(json, "epochs_done", progress.epochs_done));
  HADAL_ASSIGN_OR_RETURN(progress.epoch_start, ParseEpochStart(json));
  HADAL_RETURN_IF_ERROR(Take(json, "samples_seen", progress.samples_seen));
  HADAL_RETURN_IF_ERROR(Take(json, "target_tokens_seen", progress.target_tokens_seen));
  HADAL_RETURN_IF_ERROR(Take(json, "training_seconds", progress.training_seconds));
  HADAL_RETURN_IF_ERROR(Take(json, "validation_nll", progress.validation_nll));
  HADAL_RETURN_IF_ERROR(Take(json, "best_nll", progress.best_nll));
  HADAL_RETURN_IF_ERROR(Take(json, "best_step", progress.best_step));
  HADAL_RETURN_IF_ERROR(Take(json, "validations_without_improvement", progress.validations_without_improvement));
  HADAL_RETURN_IF_ERROR(Take(json, "losses", progress.loss_trend.losses));
  HADAL_RETURN_IF_ERROR(Take(json, "loss_mean", progress.loss_trend.mean));
  HADAL_RETURN_IF_ERROR(Take(json, "loss_variance", progress.loss_trend.variance));
  if (progress.step < 0 || progress.update < 0 || progress.update > progress.step) {
    return Damaged(absl::StrCat("step ", progress.step, " and update ", progress.update, " make no sense"));
  }
  return progress;
}

absl::StatusOr<CheckpointParameter> ParseParameter(const Json& json) {
  CheckpointParameter parameter;
  std::optional<std::string> name;
  std::optional<int64_t> rows;
  std::optional<int64_t> columns = 1;
  if (json.is_array() && (json.size() == 2 || json.size() == 3)) {
    name = As<std::string>(json[0]);
    rows = As<int64_t>(json[1]);
    if (json.size() == 3) columns = As<int64_t>(json[2]);
  }
  if (!name || !rows || !columns) return Damaged("an entry of \"parameters\" is not [name, rows, columns]");
  if (!IsPlainFileName(*name)) return Damaged(absl::StrCat("\"", *name, "\" is no parameter name"));
  if (*rows < 1 || *columns < 1 || *rows > kMaxParameterElements / *columns) {
    return Damaged(absl::StrCat("the parameter ", *name, " has the impossible shape [", *rows, ", ", *columns, "]"));
  }
  return CheckpointParameter{
      .name = *std::move(name), .rows = *rows, .columns = *columns, .is_vector = json.size() == 2};
}

absl::StatusOr<WrittenSlice> ParseSlice(const Json& json) {
  WrittenSlice slice;
  if (!json.is_array() || json.size() != 2 + kStateKinds.size()) return Damaged("an entry of \"slices\" is malformed");
  const auto parameter = As<int32_t>(json[0]);
  const auto index = As<int64_t>(json[1]);
  if (!parameter || !index || *parameter < 0 || *index < 0) return Damaged("an entry of \"slices\" is malformed");
  slice.parameter = *parameter;
  slice.slice = *index;
  for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
    if (json[2 + kind].is_null()) continue;
    slice.crc32c[kind] = As<uint32_t>(json[2 + kind]);
    if (!slice.crc32c[kind]) return Damaged("a checksum in \"slices\" is malformed");
  }
  return slice;
}

absl::StatusOr<WrittenFile> ParseFile(const Json& json) {
  if (!json.is_object()) return Damaged("an entry of \"files\" is not an object");
  WrittenFile file;
  HADAL_RETURN_IF_ERROR(Take(json, "name", file.name));
  HADAL_RETURN_IF_ERROR(Take(json, "bytes", file.bytes));
  HADAL_RETURN_IF_ERROR(Take(json, "crc32c", file.crc32c));
  HADAL_RETURN_IF_ERROR(Take(json, "header_bytes", file.header_bytes));
  HADAL_RETURN_IF_ERROR(Take(json, "header_crc32c", file.header_crc32c));
  if (!IsPlainFileName(file.name)) return Damaged(absl::StrCat("\"", file.name, "\" is not a plain file name"));
  HADAL_ASSIGN_OR_RETURN(const Json* slices, TakeList(json, "slices"));
  file.slices.reserve(slices->size());
  for (const Json& entry : *slices) {
    HADAL_ASSIGN_OR_RETURN(WrittenSlice slice, ParseSlice(entry));
    file.slices.push_back(slice);
  }
  return file;
}

absl::StatusOr<AttachedFile> ParseAttachment(const Json& json) {
  if (!json.is_object()) return Damaged("an entry of \"attachments\" is not an object");
  AttachedFile file;
  HADAL_RETURN_IF_ERROR(Take(json, "name", file.name));
  HADAL_RETURN_IF_ERROR(Take(json, "bytes", file.bytes));
  HADAL_RETURN_IF_ERROR(Take(json, "crc32c", file.crc32c));
  if (!IsPlainFileName(file.name)) return Damaged(absl::StrCat("\"", file.name, "\" is not a plain file name"));
  return file;
}

// Cuts off the last field, which must be the CRC32C of all before it. Returns the JSON without it.
absl::StatusOr<std::string> CheckOwnCrc(std::string_view text) {
  const size_t at = text.rfind(kManifestCrcField);
  uint32_t expected = 0;
  if (at == std::string_view::npos) return Damaged("its checksum is missing: cut short?");
  const std::string tail(text.substr(at + std::string_view(kManifestCrcField).size()));
  const size_t end = tail.find("\n}\n");
  if (end == std::string::npos || end + 3 != tail.size() || !absl::SimpleAtoi(tail.substr(0, end), &expected)) {
    return Damaged("its checksum is malformed: cut short?");
  }
  const uint32_t actual = Crc32c(text.data(), at);
  if (actual != expected) return Damaged(absl::StrFormat("its CRC32C is %08x, it says %08x", actual, expected));
  return std::string(text.substr(0, at)) + "\n}";
}

absl::Status ParseSettings(const Json& root, CheckpointManifest& manifest) {
  int64_t unix_seconds = 0;
  int64_t slice_elements = 0;
  HADAL_RETURN_IF_ERROR(Take(root, "plan_hash", manifest.plan_hash));
  HADAL_RETURN_IF_ERROR(Take(root, "slice_elements", slice_elements));
  HADAL_RETURN_IF_ERROR(Take(root, "attempt", manifest.attempt));
  HADAL_RETURN_IF_ERROR(Take(root, "time_unix_seconds", unix_seconds));
  HADAL_RETURN_IF_ERROR(Take(root, "has_moments", manifest.has_moments));
  HADAL_RETURN_IF_ERROR(Take(root, "config", manifest.config_text));
  if (slice_elements != kSliceElements) {
    return Damaged(absl::StrCat("slices of ", slice_elements, " elements, this program uses ", kSliceElements));
  }
  manifest.time = absl::FromUnixSeconds(unix_seconds);
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object()) return Damaged("\"model\" is not an object");
  manifest.model_settings = model->dump();
  return absl::OkStatus();
}

// The names of all files in the directory: different ones.
absl::Status CheckNames(const CheckpointManifest& manifest) {
  std::set<std::string> names = {std::string(kManifestName)};
  const auto insert = [&](const std::string& name) {
    return names.insert(name).second ? absl::OkStatus() : Damaged(absl::StrCat("the file ", name, " is listed twice"));
  };
  for (const WrittenFile& file : manifest.files) HADAL_RETURN_IF_ERROR(insert(file.name));
  for (const AttachedFile& file : manifest.attachments) HADAL_RETURN_IF_ERROR(insert(file.name));
  std::set<std::string_view> parameters;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    if (!parameters.insert(parameter.name).second) {
      return Damaged(absl::StrCat("the parameter ", parameter.name, " is listed twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WrittenFile> WrittenFile::Parse(std::string_view text) {
  HADAL_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, kLimits, "a rank's file record"));
  return ParseFile(json);
}

absl::StatusOr<CheckpointManifest> CheckpointManifest::Parse(std::string_view text) {
  HADAL_ASSIGN_OR_RETURN(const std::string body, CheckOwnCrc(text));
  HADAL_ASSIGN_OR_RETURN(const Json root, ParseStrictJson(body, kLimits, "manifest"));
  if (!root.is_object()) return Damaged("it is not a JSON object");
  int32_t format = 0;
  HADAL_RETURN_IF_ERROR(Take(root, "format", format));
  if (format != kCheckpointFormat) {
    return absl::FailedPreconditionError(absl::StrCat("manifest: format ", format, ", this program reads ",
                                                      kCheckpointFormat,
                                                      "; use the hadal that wrote it, or a newer one"));
  }
  CheckpointManifest manifest;
  HADAL_RETURN_IF_ERROR(ParseSettings(root, manifest));
  HADAL_ASSIGN_OR_RETURN(manifest.progress, ParseProgress(root));
  HADAL_ASSIGN_OR_RETURN(const Json* parameters, TakeList(root, "parameters"));
  for (const Json& entry : *parameters) {
    HADAL_ASSIGN_OR_RETURN(CheckpointParameter parameter, ParseParameter(entry));
    manifest.parameters.push_back(std::move(parameter));
  }
  HADAL_ASSIGN_OR_RETURN(const Json* attachments, TakeList(root, "attachments"));
  for (const Json& entry : *attachments) {
    HADAL_ASSIGN_OR_RETURN(AttachedFile file, ParseAttachment(entry));
    manifest.attachments.push_back(std::move(file));
  }
  HADAL_ASSIGN_OR_RETURN(const Json* files, TakeList(root, "files"));
  for (const Json& entry : *files) {
    HADAL_ASSIGN_OR_RETURN(WrittenFile file, ParseFile(entry));
    manifest.files.push_back(std::move(file));
  }
  HADAL_RETURN_IF_ERROR(CheckNames(manifest));
  HADAL_RETURN_IF_ERROR(manifest.CheckCoverage());
  return manifest;
}

}  // namespace hadal
