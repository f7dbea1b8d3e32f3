#include "pipeline/checkpoint/checkpoint_manifest.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/json_fields.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

std::string ShapeText(const CheckpointParameter& parameter) {
  return parameter.is_vector ? absl::StrCat("[", parameter.rows, "]")
                             : absl::StrCat("[", parameter.rows, ", ", parameter.columns, "]");
}

absl::Status Damaged(absl::string_view what) { return DataLossError("manifest: ", what); }

// One line a list entry, so that a manifest is readable and text tools can compare two.
template <typename Range, typename ToJson>
std::string Lines(const Range& range, ToJson&& to_json) {
  std::string text = "[";
  for (const auto& entry : range) absl::StrAppend(&text, text.size() > 1 ? ",\n  " : "\n  ", to_json(entry));
  return text + "]";
}

std::string Quote(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

Json ToJson(const DataIdentity& identity) { return {{"samples", identity.samples}, {"crc32c", identity.crc32c}}; }

void AddShuffling(const Shuffling& shuffling, Json& json) {
  json["seed"] = shuffling.seed;
  json["source_rows"] = shuffling.capacity.source_rows;
  json["target_rows"] = shuffling.capacity.target_rows;
  json["sentence_rows"] = shuffling.capacity.sentence_rows;
}

Json PlaceToJson(const DataPlace& place) {
  Json texts = Json::array();
  for (const TextPlace& text : place.texts) {
    Json& json = texts.emplace_back(Json{{"pass", text.pass}, {"read", text.read}, {"quota", text.quota}});
    if (text.shuffling != place.shuffling) AddShuffling(text.shuffling, json);
  }
  Json json = {{"epoch", place.epoch}, {"read", place.read}, {"texts", std::move(texts)}};
  AddShuffling(place.shuffling, json);
  return json;
}

Json ProgressToJson(const TrainingProgress& progress) {
  Json json = {
      {"step", progress.step},
      {"update", progress.update},
      {"seed", progress.seed},
      {"epochs_done", progress.epochs_done},
      {"samples_seen", progress.samples_seen},
      {"target_tokens_seen", progress.target_tokens_seen},
      {"training_seconds", progress.training_seconds},
      {"validation_nll", progress.validation_nll},  // infinity: null
      // Older versions read one best, by nll.
      {"best_nll", progress.validation_metric == "nll" && !progress.best.empty() ? Json(progress.best.front().score)
                                                                                 : Json(nullptr)},
      {"best_step", progress.best_step()},
      {"validation_metric", progress.validation_metric},
      {"validations_without_improvement", progress.validations_without_improvement},
      {"validation_due", progress.validation_due},
      {"losses", progress.loss_trend.losses},
      {"loss_mean", progress.loss_trend.mean},
      {"loss_variance", progress.loss_trend.variance},
      {"skipped_in_a_row", progress.skipped_in_a_row}};
  for (const ScoredStep& scored : progress.best) json["best"].push_back({scored.step, scored.score});
  if (!progress.place.texts.empty()) json["place"] = PlaceToJson(progress.place);
  if (progress.training_data.known()) json["training_data"] = ToJson(progress.training_data);
  if (progress.validation_data.known()) json["validation_data"] = ToJson(progress.validation_data);
  if (progress.updates_before > 0) json["updates_before"] = progress.updates_before;
  return json;
}

// ["name", rows, columns], vectors ["name", rows].
std::string ParameterToText(const CheckpointParameter& parameter) {
  Json json = {parameter.name, parameter.rows};
  if (!parameter.is_vector) json.push_back(parameter.columns);
  return json.dump();
}

// [parameter, slice, crc of weight, of first moment, of second moment], null for what the file does not hold.
Json SliceToJson(const WrittenSlice& slice) {
  Json json = {slice.parameter, slice.slice};
  for (const std::optional<uint32_t>& crc : slice.crc32c) json.push_back(crc ? Json(*crc) : Json(nullptr));
  return json;
}

Json InputKindToJson(const InputKind& inputs) {
  Json json = Json::object();
  if (!inputs.tags.empty()) json["tags"] = inputs.tags;
  if (inputs.frame_width > 0) json["frame_width"] = inputs.frame_width;
  if (inputs.sample_rate > 0) json["sample_rate"] = inputs.sample_rate;
  if (!inputs.cmvn.empty()) json["cmvn"] = inputs.cmvn;
  return json;
}

Json FileToJson(const WrittenFile& file) {
  Json slices = Json::array();
  for (const WrittenSlice& slice : file.slices) slices.push_back(SliceToJson(slice));
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"crc32c", file.crc32c},
          {"header_bytes", file.header_bytes},
          {"header_crc32c", file.header_crc32c},
          {"slices", std::move(slices)}};
}

// ---- Reading ----

constexpr StrictJsonLimits kLimits = {.max_bytes = kMaxManifestBytes, .max_depth = 5};
constexpr int64_t kMaxParameterElements = int64_t{1} << 50;

Shuffling ReadShuffling(JsonFields& fields) {
  Shuffling shuffling;
  fields.Read("seed", shuffling.seed);
  fields.Read("source_rows", shuffling.capacity.source_rows);
  fields.Read("target_rows", shuffling.capacity.target_rows);
  fields.Read("sentence_rows", shuffling.capacity.sentence_rows);
  return shuffling;
}

DataPlace ReadPlace(JsonFields fields, absl::Status& status) {
  DataPlace place;
  fields.Read("epoch", place.epoch, 0);
  fields.Read("read", place.read, 0);
  place.shuffling = ReadShuffling(fields);
  for (const Json& entry : fields.List("texts")) {
    JsonFields of_text(entry, absl::StrCat("progress.place.texts[", place.texts.size(), "]"), status);
    TextPlace& text = place.texts.emplace_back();
    of_text.Read("pass", text.pass, 0);
    of_text.Read("read", text.read, 0);
    of_text.Read("quota", text.quota, 0);
    text.shuffling = of_text.Has("seed") ? ReadShuffling(of_text) : place.shuffling;
  }
  return place;
}

DataIdentity ReadIdentity(JsonFields fields) {
  DataIdentity identity;
  fields.Read("samples", identity.samples, 1);
  fields.Read("crc32c", identity.crc32c);
  return identity;
}

void ReadBest(JsonFields& fields, TrainingProgress& progress) {
  ScoredStep first;
  fields.ReadOrInfinity("best_nll", first.score);
  fields.Read("best_step", first.step);
  if (fields.Has("validation_metric")) fields.Read("validation_metric", progress.validation_metric);
  if (!fields.Has("best")) {  // of an older version
    if (first.step >= 0) progress.best = {first};
    return;
  }
  for (const Json& entry : fields.List("best")) {
    const bool pair = entry.is_array() && entry.size() == 2 && entry[1].is_number();
    const std::optional<int64_t> step = pair ? JsonInteger<int64_t>(entry[0]) : std::nullopt;
    if (!step) return fields.Fail("best", "has an entry that is not [step, score]");
    progress.best.push_back({.step = *step, .score = entry[1].get<double>()});
  }
}

TrainingProgress ReadProgress(JsonFields fields, absl::Status& status) {
  TrainingProgress progress;
  fields.Read("step", progress.step, 0);
  fields.Read("update", progress.update, 0, progress.step);
  fields.Read("seed", progress.seed);
  fields.ReadOrInfinity("epochs_done", progress.epochs_done);
  fields.Read("samples_seen", progress.samples_seen);
  fields.Read("target_tokens_seen", progress.target_tokens_seen);
  fields.ReadOrInfinity("training_seconds", progress.training_seconds);
  fields.ReadOrInfinity("validation_nll", progress.validation_nll);
  ReadBest(fields, progress);
  fields.Read("validations_without_improvement", progress.validations_without_improvement);
  if (fields.Has("validation_due")) fields.Read("validation_due", progress.validation_due);
  fields.Read("losses", progress.loss_trend.losses);
  fields.ReadOrInfinity("loss_mean", progress.loss_trend.mean);
  fields.ReadOrInfinity("loss_variance", progress.loss_trend.variance);
  if (fields.Has("skipped_in_a_row")) fields.Read("skipped_in_a_row", progress.skipped_in_a_row, 0);
  if (fields.Has("place")) progress.place = ReadPlace(fields.Object("place"), status);
  if (fields.Has("training_data")) progress.training_data = ReadIdentity(fields.Object("training_data"));
  if (fields.Has("validation_data")) progress.validation_data = ReadIdentity(fields.Object("validation_data"));
  if (fields.Has("updates_before")) fields.Read("updates_before", progress.updates_before, 0);
  return progress;
}

absl::StatusOr<CheckpointParameter> ParseParameter(const Json& json) {
  CheckpointParameter parameter;
  std::optional<std::string> name;
  std::optional<int64_t> rows;
  std::optional<int64_t> columns = 1;
  if (json.is_array() && (json.size() == 2 || json.size() == 3)) {
    if (json[0].is_string()) name = json[0].get<std::string>();
    rows = JsonInteger<int64_t>(json[1]);
    if (json.size() == 3) columns = JsonInteger<int64_t>(json[2]);
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
  const auto parameter = JsonInteger<int32_t>(json[0]);
  const auto index = JsonInteger<int64_t>(json[1]);
  if (!parameter || !index || *parameter < 0 || *index < 0) return Damaged("an entry of \"slices\" is malformed");
  slice.parameter = *parameter;
  slice.slice = *index;
  for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
    if (json[2 + kind].is_null()) continue;
    slice.crc32c[kind] = JsonInteger<uint32_t>(json[2 + kind]);
    if (!slice.crc32c[kind]) return Damaged("a checksum in \"slices\" is malformed");
  }
  return slice;
}

absl::StatusOr<WrittenFile> ParseFile(const Json& json, std::string place) {
  absl::Status status;
  JsonFields fields(json, std::move(place), status);
  WrittenFile file;
  fields.ReadFileName("name", file.name);
  fields.Read("bytes", file.bytes);
  fields.Read("crc32c", file.crc32c);
  fields.Read("header_bytes", file.header_bytes);
  fields.Read("header_crc32c", file.header_crc32c);
  const Json& slices = fields.List("slices");
  if (!status.ok()) return Damaged(status.message());
  file.slices.reserve(slices.size());
  for (const Json& entry : slices) {
    HADAL_ASSIGN_OR_RETURN(WrittenSlice slice, ParseSlice(entry));
    file.slices.push_back(slice);
  }
  return file;
}

AttachedFile ReadAttachment(JsonFields fields) {
  AttachedFile file;
  fields.ReadFileName("name", file.name);
  fields.Read("bytes", file.bytes);
  fields.Read("crc32c", file.crc32c);
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

void ReadSettings(const Json& root, JsonFields& fields, CheckpointManifest& manifest) {
  int64_t unix_seconds = 0;
  int64_t slice_elements = kSliceElements;
  fields.Read("plan_hash", manifest.plan_hash);
  fields.Read("slice_elements", slice_elements);
  fields.Read("attempt", manifest.attempt);
  fields.Read("time_unix_seconds", unix_seconds);
  fields.Read("has_moments", manifest.has_moments);
  if (fields.Has("muon")) fields.Read("muon", manifest.muon);
  fields.Read("config", manifest.config_text);
  fields.Object("model");
  manifest.time = absl::FromUnixSeconds(unix_seconds);
  if (fields.Has("model")) manifest.model_settings = root["model"].dump();
  if (fields.Has("inputs")) manifest.inputs = ReadInputKind(fields.Object("inputs"));
  if (slice_elements != kSliceElements) {
    fields.Fail("slice_elements",
                absl::StrCat("gives slices of ", slice_elements, " elements, this program uses ", kSliceElements));
  }
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

InputKind ReadInputKind(JsonFields fields) {
  InputKind inputs;
  if (fields.Has("tags")) fields.Read("tags", inputs.tags);
  if (fields.Has("frame_width")) fields.Read("frame_width", inputs.frame_width, 0);
  if (fields.Has("sample_rate")) fields.Read("sample_rate", inputs.sample_rate, 0);
  if (fields.Has("cmvn")) fields.Read("cmvn", inputs.cmvn);
  return inputs;
}

const Vector& SliceState::view(StateKind kind) const {
  switch (kind) {
    case StateKind::kWeight:
      return weight;
    case StateKind::kFirstMoment:
      return first_moment;
    case StateKind::kSecondMoment:
      return second_moment;
  }
  return weight;
}

int64_t CheckpointParameter::slice_elements(int64_t slice) const {
  HADAL_CHECK_GE(slice, 0);
  HADAL_CHECK_LT(slice, slices());
  return std::min(kSliceElements, elements() - slice * kSliceElements);
}

std::vector<CheckpointParameter> DescribeParameters(const ModelPlan& plan) {
  std::vector<CheckpointParameter> result;
  result.reserve(plan.parameters.size());
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    const ParameterRecord& record = plan.parameters[p];
    result.push_back({.name = plan.ParameterName(p),
                      .rows = record.rows,
                      .columns = record.columns,
                      .is_vector = record.is_vector()});
  }
  return result;
}

absl::Status CompareParameters(const std::vector<CheckpointParameter>& checkpoint,
                               const std::vector<CheckpointParameter>& model) {
  const size_t both = std::min(checkpoint.size(), model.size());
  for (size_t p = 0; p < both; ++p) {
    if (checkpoint[p] == model[p]) continue;
    return FailedPreconditionError("the checkpoint is of another model: its parameter ", p, " is ", checkpoint[p].name,
                                   " ", ShapeText(checkpoint[p]), ", the model's is ", model[p].name, " ",
                                   ShapeText(model[p]),
                                   "; compare the config with the one in the checkpoint's manifest");
  }
  if (checkpoint.size() != model.size()) {
    return FailedPreconditionError("the checkpoint is of another model: it has ", checkpoint.size(),
                                   " parameters, the model ", model.size(),
                                   "; compare the config with the one in the checkpoint's manifest");
  }
  return absl::OkStatus();
}

std::string StateKey(StateKind kind, const std::string& parameter_name, int64_t slice) {
  constexpr std::array<const char*, kStateKinds.size()> kPrefixes = {"weight", "adam_m", "adam_v"};
  return absl::StrCat(kPrefixes[static_cast<size_t>(kind)], "/", parameter_name, "/", slice);
}

std::string WrittenFile::ToString() const { return FileToJson(*this).dump(); }

std::string CheckpointManifest::ToString() const {
  std::string text = absl::StrCat("{\n\"format\": ", kCheckpointFormat, ",\n\"plan_hash\": ", plan_hash,
                                  ",\n\"slice_elements\": ", kSliceElements, ",\n\"attempt\": ", Quote(attempt),
                                  ",\n\"time\": \"", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()),
                                  "\",\n\"time_unix_seconds\": ", absl::ToUnixSeconds(time));
  absl::StrAppend(&text, ",\n\"progress\": ", ProgressToJson(progress).dump(),
                  ",\n\"has_moments\": ", has_moments ? "true" : "false", muon ? ",\n\"muon\": true" : "",
                  ",\n\"model\": ", model_settings.empty() ? "{}" : model_settings,
                  ",\n\"inputs\": ", InputKindToJson(inputs).dump(), ",\n\"config\": ", Quote(config_text));
  absl::StrAppend(&text, ",\n\"parameters\": ", Lines(parameters, ParameterToText));
  absl::StrAppend(&text, ",\n\"attachments\": ", Lines(attachments, [](const AttachedFile& file) {
    return Json({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", file.crc32c}}).dump();
  }));
  absl::StrAppend(&text, ",\n\"files\": ", Lines(files, [](const WrittenFile& file) { return file.ToString(); }));
  return absl::StrCat(text, kManifestCrcField, Crc32c(text.data(), text.size()), "\n}\n");
}

absl::Status CheckpointManifest::CheckCoverage() const {
  // Grows with what is listed, never with what a shape declares.
  std::map<std::pair<int32_t, int64_t>, std::array<bool, kStateKinds.size()>> seen;
  for (const WrittenFile& file : files) {
    for (const WrittenSlice& slice : file.slices) {
      if (slice.parameter < 0 || slice.parameter >= static_cast<int64_t>(parameters.size()) || slice.slice < 0 ||
          slice.slice >= parameters[slice.parameter].slices()) {
        return Damaged(absl::StrCat(file.name, " lists slice ", slice.slice, " of parameter ", slice.parameter,
                                    ", which the model does not have"));
      }
      auto& kinds = seen[{slice.parameter, slice.slice}];
      for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
        if (!slice.crc32c[kind]) continue;
        if (std::exchange(kinds[kind], true)) {
          return Damaged(absl::StrCat(StateKey(kStateKinds[kind], parameters[slice.parameter].name, slice.slice),
                                      " is listed twice, the second time in ", file.name));
        }
      }
    }
  }
  // Ends at the first slice that is not listed, so after as many rounds as there are entries, at most one more.
  for (int32_t p = 0; p < static_cast<int32_t>(parameters.size()); ++p) {
    const auto first = seen.find({p, 0});
    const bool momentum_alone =
        muon && first != seen.end() && !first->second[static_cast<size_t>(StateKind::kSecondMoment)];
    for (int64_t slice = 0; slice < parameters[p].slices(); ++slice) {
      const auto found = seen.find({p, slice});
      for (const StateKind kind : kStateKinds) {
        const bool there = found != seen.end() && found->second[static_cast<size_t>(kind)];
        const bool wanted =
            kind == StateKind::kWeight || (has_moments && !(kind == StateKind::kSecondMoment && momentum_alone));
        if (there == wanted) continue;
        return Damaged(absl::StrCat(StateKey(kind, parameters[p].name, slice),
                                    wanted ? " is in no file" : " is there although the checkpoint has no moments"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> WrittenFile::Parse(std::string_view text) {
  HADAL_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, kLimits, "a rank's file record"));
  return ParseFile(json, "");
}

absl::StatusOr<CheckpointManifest> CheckpointManifest::Parse(std::string_view text) {
  HADAL_ASSIGN_OR_RETURN(const std::string body, CheckOwnCrc(text));
  HADAL_ASSIGN_OR_RETURN(const Json root, ParseStrictJson(body, kLimits, "manifest"));
  absl::Status status;
  JsonFields fields(root, "", status);
  int32_t format = kCheckpointFormat;
  fields.Read("format", format);
  if (format != kCheckpointFormat) {
    return FailedPreconditionError("manifest: format ", format, ", this program reads ", kCheckpointFormat,
                                   "; use the hadal that wrote it, or a newer one");
  }
  CheckpointManifest manifest;
  ReadSettings(root, fields, manifest);
  manifest.progress = ReadProgress(fields.Object("progress"), status);
  for (const Json& entry : fields.List("attachments")) {
    const size_t index = manifest.attachments.size();
    manifest.attachments.push_back(ReadAttachment(JsonFields(entry, absl::StrCat("attachments[", index, "]"), status)));
  }
  const Json &parameters = fields.List("parameters"), &files = fields.List("files");
  if (!status.ok()) return Damaged(status.message());
  for (const Json& entry : parameters) {
    HADAL_ASSIGN_OR_RETURN(CheckpointParameter parameter, ParseParameter(entry));
    manifest.parameters.push_back(std::move(parameter));
  }
  for (const Json& entry : files) {
    HADAL_ASSIGN_OR_RETURN(WrittenFile file, ParseFile(entry, absl::StrCat("files[", manifest.files.size(), "]")));
    manifest.files.push_back(std::move(file));
  }
  HADAL_RETURN_IF_ERROR(CheckNames(manifest));
  HADAL_RETURN_IF_ERROR(manifest.CheckCoverage());
  return manifest;
}

}  // namespace hadal
