#include "pipeline/checkpoint/checkpoint_manifest.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/crc32c.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

absl::Status Damaged(const std::string& what) { return absl::DataLossError(absl::StrCat("manifest: ", what)); }

// One line a list entry, so that people can read a manifest and text tools can compare two.
template <typename Range, typename ToJson>
std::string Lines(const Range& range, ToJson&& to_json) {
  std::string text = "[";
  for (const auto& entry : range) absl::StrAppend(&text, text.size() > 1 ? ",\n  " : "\n  ", to_json(entry));
  return text + "]";
}

std::string Quote(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

// Infinity has no JSON form: null.
Json FiniteOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json ProgressToJson(const TrainingProgress& progress) {
  return {{"step", progress.step},
          {"update", progress.update},
          {"seed", progress.seed},
          {"epochs_done", progress.epochs_done},
          {"epoch_start", {progress.epoch_start.order, progress.epoch_start.epoch, progress.epoch_start.micro_batch}},
          {"samples_seen", progress.samples_seen},
          {"target_tokens_seen", progress.target_tokens_seen},
          {"training_seconds", progress.training_seconds},
          {"validation_nll", FiniteOrNull(progress.validation_nll)},
          {"best_nll", FiniteOrNull(progress.best_nll)},
          {"best_step", progress.best_step},
          {"validations_without_improvement", progress.validations_without_improvement},
          {"validation_due", progress.validation_due},
          {"losses", progress.loss_trend.losses},
          {"loss_mean", progress.loss_trend.mean},
          {"loss_variance", progress.loss_trend.variance}};
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

}  // namespace

std::string WrittenFile::ToString() const { return FileToJson(*this).dump(); }

std::string CheckpointManifest::ToString() const {
  std::string text = absl::StrCat("{\n\"format\": ", kCheckpointFormat, ",\n\"plan_hash\": ", plan_hash,
                                  ",\n\"slice_elements\": ", kSliceElements, ",\n\"attempt\": ", Quote(attempt),
                                  ",\n\"time\": \"", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()),
                                  "\",\n\"time_unix_seconds\": ", absl::ToUnixSeconds(time));
  absl::StrAppend(&text, ",\n\"progress\": ", ProgressToJson(progress).dump(),
                  ",\n\"has_moments\": ", has_moments ? "true" : "false",
                  ",\n\"model\": ", model_settings.empty() ? "{}" : model_settings,
                  ",\n\"config\": ", Quote(config_text));
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
    for (int64_t slice = 0; slice < parameters[p].slices(); ++slice) {
      const auto found = seen.find({p, slice});
      for (const StateKind kind : kStateKinds) {
        const bool there = found != seen.end() && found->second[static_cast<size_t>(kind)];
        const bool wanted = kind == StateKind::kWeight || has_moments;
        if (there == wanted) continue;
        return Damaged(absl::StrCat(StateKey(kind, parameters[p].name, slice),
                                    wanted ? " is in no file" : " is there although the checkpoint has no moments"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
